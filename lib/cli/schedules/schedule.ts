/** `cnapi schedule`: push jobs at a time, or at the times of a cron expression. */
import { Command } from 'commander';
import type { CnapiClient } from '../../client/client.ts';
import { type PushSchedule, pushScheduleContracts } from '../../protocol/api/push-schedules.ts';
import { isUuid } from '../../protocol/api/rules.ts';
import { type CommandRunner, examples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { checkPrefix, onlyOne } from '../lookup/find.ts';
import { parseCount } from '../terminal/count.ts';
import { shortTime } from '../terminal/duration.ts';
import type { Column } from '../terminal/table.ts';
import { createCommand } from './schedule-create.ts';

const MAX_SCHEDULES = 1_000;

export const SCHEDULE_COLUMNS: readonly Column<PushSchedule>[] = [
  { head: 'ID', of: ({ id }) => id, abbreviates: true },
  { head: 'STATUS', of: ({ status }) => status },
  { head: 'TIMES', of: timesOf, shrinks: true },
  { head: 'NEXT', of: ({ next_at, status }) => (status === 'active' ? shortTime(next_at) : '-') },
  { head: 'LAST', of: ({ last_at }) => shortTime(last_at), optional: true },
  { head: 'OUTCOME', of: ({ last_outcome }) => last_outcome ?? '-', optional: true },
  { head: 'COMMAND', of: commandOf, shrinks: true },
];

export function scheduleCommand(runner: CommandRunner): Command {
  const ofOne = (name: string, description: string) =>
    new Command(name).description(description).argument('<schedule>', 'id, or the beginning of one');
  return new Command('schedule')
    .description('Push jobs at a time, or at the times of a cron expression.')
    .addCommand(createCommand(runner))
    .addCommand(
      examples(
        new Command('list')
          .description('Lists schedules, newest first.')
          .option('--limit <count>', `at most this many, up to ${MAX_SCHEDULES}`, '100')
          .action(runner.action(list)),
        ['cnapi schedule list'],
      ),
    )
    .addCommand(
      examples(ofOne('get', 'Shows a schedule, its last and its next time.').action(runner.action(get)), [
        'cnapi schedule get 5c4e',
      ]),
    )
    .addCommand(
      examples(
        ofOne('pause', 'Starts no jobs until it is resumed.').action(
          runner.action((context, [text]) => change(context, String(text), 'PausePushSchedule')),
        ),
        ['cnapi schedule pause 5c4e'],
      ),
    )
    .addCommand(
      examples(
        ofOne('resume', 'Goes on with the next time; those that passed meanwhile are left out.').action(
          runner.action((context, [text]) => change(context, String(text), 'ResumePushSchedule')),
        ),
        ['cnapi schedule resume 5c4e'],
      ),
    )
    .addCommand(
      examples(ofOne('delete', 'Deletes a schedule; its jobs stay and go on.').action(runner.action(remove)), [
        'cnapi schedule delete 5c4e',
      ]),
    );
}

async function list({ client, output }: Context, _: readonly unknown[], options: { limit: string }): Promise<void> {
  const limit = parseCount(options.limit, '--limit', MAX_SCHEDULES);
  const schedules = await firstSchedules(client, limit);
  if (output.json) return output.document(schedules);
  output.table(SCHEDULE_COLUMNS, schedules);
  if (schedules.length === 0) output.note('No schedules');
}

async function get(context: Context, [text]: readonly unknown[]): Promise<void> {
  const id = await findSchedule(context, String(text));
  show(context, await context.client.ask(pushScheduleContracts.GetPushSchedule, { id }));
}

async function change(context: Context, text: string, how: 'PausePushSchedule' | 'ResumePushSchedule'): Promise<void> {
  const id = await findSchedule(context, text);
  show(context, await context.client.ask(pushScheduleContracts[how], { id }));
}

async function remove(context: Context, [text]: readonly unknown[]): Promise<void> {
  const id = await findSchedule(context, String(text));
  await context.client.documents(pushScheduleContracts.DeletePushSchedule, { id });
  context.output.deleted('schedule', [id]);
}

function show({ output }: Context, schedule: PushSchedule): void {
  if (output.json) return output.document(schedule);
  const { last_outcome, last_reason, last_message } = schedule;
  const outcome = [last_outcome, last_reason, last_message].filter((text) => text !== undefined);
  output.facts([
    ['schedule', schedule.id],
    ['status', schedule.status],
    ['times', timesOf(schedule)],
    ['overlap', schedule.overlap],
    ['next', shortTime(schedule.next_at)],
    ['waiting', schedule.queued_at && shortTime(schedule.queued_at)],
    ['last', shortTime(schedule.last_at)],
    ['outcome', outcome.length > 0 ? outcome.join(': ') : undefined],
    ['last job', schedule.last_job],
    ['servers', targetsIn(schedule)],
    ['command', commandOf(schedule)],
  ]);
}

function timesOf({ at, cron, time_zone }: PushSchedule): string {
  return cron === undefined ? shortTime(at) : `${cron} ${time_zone}`;
}

/** Which servers its jobs are for. */
function targetsIn({ job = {} }: PushSchedule): string | undefined {
  const { servers, where, group, from_job, from_status } = job as Readonly<Record<string, unknown>>;
  if (Array.isArray(servers)) return servers.length === 1 ? String(servers[0]) : `${servers.length} servers by uuid`;
  if (Array.isArray(where)) return where.join(' ') === 'uuid=*' ? 'all' : where.join(' ');
  if (group !== undefined) return `those of server group ${group}`;
  if (from_job === undefined) return undefined;
  return `those of push job ${from_job}${from_status === undefined ? '' : ` that are ${from_status}`}`;
}

function commandOf({ job }: PushSchedule): string {
  return typeof job?.command === 'string' ? job.command : '-';
}

/** From as many pages as needed: a page of large jobs is short. */
async function firstSchedules(client: CnapiClient, count: number): Promise<PushSchedule[]> {
  const schedules: PushSchedule[] = [];
  for (let after: string | undefined; ; ) {
    const limit = Math.min(MAX_SCHEDULES, count - schedules.length);
    const page = await client.ask(pushScheduleContracts.ListPushSchedules, { limit, after });
    schedules.push(...page.schedules);
    after = page.next;
    if (after === undefined || schedules.length >= count) return schedules;
  }
}

/** @throws UsageError */
async function findSchedule({ client }: Context, text: string): Promise<string> {
  if (isUuid(text)) return text;
  checkPrefix('a schedule', text);
  const schedules = await firstSchedules(client, Number.POSITIVE_INFINITY);
  const ids = schedules.map(({ id }) => id).filter((id) => id.startsWith(text.toLowerCase()));
  return onlyOne('schedule', text, ids);
}

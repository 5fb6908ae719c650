/** `cnapi schedule create`, and `--at` of `cnapi job start`: push jobs that start later. */

import { Command, Option } from 'commander';
import { ApiError } from '../../client/client-errors.ts';
import type { Params } from '../../client/request.ts';
import { OVERLAPS, pushScheduleContracts } from '../../protocol/api/push/schedules.ts';
import type { NamedServer } from '../../protocol/api/servers.ts';
import { isDate } from '../../protocol/date.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findTargets, printServers, readServers, type Targets, targetFieldsOf } from '../lookup/targets.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { parseDuration, shortTime } from '../terminal/duration.ts';
import { buildJobBody, type PushJobOptions, requireCommand, withJobOptions } from './job-options.ts';

export interface TimeOptions {
  at?: string;
  cron?: string;
  timeZone?: string;
  overlap?: (typeof OVERLAPS)[number];
}

interface CreateOptions extends PushJobOptions, TimeOptions {
  dryRun?: boolean;
}

const MORE = `
The five fields of --cron are minute, hour, day of the month, month and day of the week; @hourly, @daily, @weekly, @monthly and \
@yearly are understood, too.

Servers by --where, --all, --group or name=pattern are looked up each time: the job runs on those that match then. Servers by name stay \
the same. If none matches now, the schedule is created with a warning; a group that does not exist is refused. --dry-run shows the \
next five times and the servers of this moment. A job of a schedule has no --secret-env, because the secret would stay in the database.
`;

export function createCommand(runner: CommandRunner): Command {
  const command = withScheduledJobOptions(
    withTimeOptions(
      new Command('create')
        .description('Creates a schedule, which starts push jobs once or repeatedly.')
        .usage('[options] [query|server...] -- command...')
        .argument('[query|server...]', 'name=pattern as in --where; or uuids, beginnings of them, or hostnames'),
    )
      .option('--capture', 'set capture_output of its jobs, for programs that ask for it; output is kept in any case')
      .option('--dry-run', 'show the next times, and the servers that match now, and create nothing'),
  ).action(
    runner.action((context, [names], options: CreateOptions) => createSchedule(context, names as string[], options), {
      rest: true,
    }),
  );
  return withExamples(withExplanation(command, MORE), [
    'cnapi schedule create --cron @daily --all --quorum 80% -- apt-get -q update',
    "cnapi schedule create --cron @daily 'hostname=web-*' --dry-run",
    "cnapi schedule create --cron @weekly 'hostname=web-*' -- ./rotate.sh",
  ]);
}

/** The options of a job but --secret-env, which `checkNoSecrets` refuses by name. */
export function withScheduledJobOptions(command: Command): Command {
  withJobOptions(command);
  for (const option of command.options) if (option.long === '--secret-env') option.hideHelp();
  return command;
}

export function withTimeOptions(command: Command): Command {
  return command
    .option('--at <time>', 'once: 22:00, 90m (from now), or 2030-01-31T22:00:00Z')
    .option('--cron <fields>', "repeatedly, such as '30 2 * * mon-fri'")
    .option('--time-zone <name>', 'of --cron, such as Europe/Berlin (default: UTC)')
    .addOption(new Option('--overlap <policy>', 'while the last job has not ended (default: skip)').choices(OVERLAPS));
}

const ZONE_OF_CRON =
  '--time-zone is for --cron. --at takes the time of this terminal, or one with its offset: --at 2030-01-31T22:00:00+01:00';

/** @throws UsageError */
export function parseTimeOptions({ at, cron, timeZone }: TimeOptions, now: number): Times {
  if (at !== undefined && cron !== undefined) throw new UsageError('Give --at or --cron, and not both');
  if (at !== undefined && timeZone !== undefined) throw new UsageError(ZONE_OF_CRON);
  return { at: at === undefined ? undefined : laterTime(at, now), cron, time_zone: timeZone };
}

/** @throws UsageError */
export function checkNoSecrets({ secretEnv }: PushJobOptions): void {
  if (secretEnv !== undefined)
    throw new UsageError('--secret-env cannot be used in a schedule: the secret would stay in the database');
}

export async function createSchedule(
  context: Context,
  names: readonly string[],
  options: CreateOptions,
): Promise<void> {
  const { client, clock, output } = context;
  if (options.at === undefined && options.cron === undefined)
    throw new UsageError('When? Give --at TIME, such as --at 22:00, or --cron FIELDS, such as --cron @daily');
  const times = parseTimeOptions(options, clock.wallTime());
  checkNoSecrets(options);
  if (!options.dryRun) requireCommand(context);
  const targets = await findTargets(context, names, options);
  if (options.dryRun) return showPlan(context, times, await matchingNow(context, targets));
  const count = 'servers' in targets ? targets.servers.length : undefined;
  const body = { ...targetFieldsOf(targets), ...(await buildJobBody(context, options, count)) };
  const schedule = await client.ask(pushScheduleContracts.CreatePushSchedule, {
    ...times,
    overlap: options.overlap,
    // Without fields that have no value.
    job: JSON.parse(JSON.stringify(body)),
  });
  if (output.json) output.document(schedule);
  else {
    output.line(schedule.id);
    output.note(`the schedule starts its first job at ${shortTime(schedule.next_at)}`);
  }
  const { complaint } = await matchingNow(context, targets);
  if (complaint !== undefined) output.complain(warningOf(complaint));
}

interface Matching {
  servers: readonly NamedServer[];
  /** Why there is none: none matches, too many do, the query is wrong, … */
  complaint?: string;
}

const warningOf = (complaint: string): string => `warning: a time that came now would be refused: ${complaint}`;

/** The servers of a job that would start now. */
async function matchingNow(context: Context, targets: Targets): Promise<Matching> {
  try {
    return { servers: await readServers(context, targets) };
  } catch (error) {
    if (error instanceof UsageError || (error instanceof ApiError && error.statusCode < 500))
      return { servers: [], complaint: error.message };
    throw error;
  }
}

type Times = Pick<Params<typeof pushScheduleContracts.CreatePushSchedule>, 'at' | 'cron' | 'time_zone'>;

async function showPlan(context: Context, request: Times, { servers, complaint }: Matching): Promise<void> {
  const { client, output } = context;
  const { times } = await client.ask(pushScheduleContracts.ListPushScheduleTimes, request);
  if (output.json) return output.document({ times, servers, ...(complaint === undefined ? {} : { complaint }) });
  for (const time of times) output.line(shortTime(time));
  output.line('');
  printServers(output, servers);
  if (complaint !== undefined) output.complain(warningOf(complaint));
}

/**
 * ISO 8601; a duration from now; or a time of this machine's day, tomorrow if it has passed.
 * @throws UsageError
 */
export function laterTime(text: string, now: number): string {
  const [, hour, minute] = /^([01]?\d|2[0-3]):([0-5]\d)$/.exec(text) ?? [];
  if (hour !== undefined && minute !== undefined) {
    const day = new Date(now);
    day.setHours(Number(hour), Number(minute), 0, 0);
    if (day.getTime() <= now) day.setDate(day.getDate() + 1);
    return day.toISOString();
  }
  if (/^\d{4}-\d\d-\d\dT/.test(text) && isDate(text.slice(0, 10)) && !Number.isNaN(Date.parse(text)))
    return new Date(Date.parse(text)).toISOString();
  try {
    return new Date(now + parseDuration(text, '--at')).toISOString();
  } catch (cause) {
    throw new UsageError(
      `--at ${text} is neither a time such as 22:00 or 2030-01-31T22:00:00Z nor a duration such as 90m`,
      {
        cause,
      },
    );
  }
}

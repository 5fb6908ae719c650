/** `cnapi schedule`: push jobs at a time, or at the times of a cron expression. */
import { Command } from 'commander';
import type { PushJob } from '../../protocol/api/push/job-schemas.ts';
import { type PushSchedule, pushScheduleContracts } from '../../protocol/api/push/schedules.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { deleteEach } from '../invocation/each.ts';
import { newestPushJobs } from '../lookup/find-push-job.ts';
import { findSchedule, firstSchedules, MAX_SCHEDULES } from '../lookup/find-schedule.ts';
import { JOB_COLUMNS } from '../push-jobs/job-progress.ts';
import { createCommand } from '../push-jobs/schedule-create.ts';
import { parseCount } from '../terminal/count.ts';
import { scheduleRunCommand } from './schedule-run.ts';
import { updateCommand } from './schedule-update.ts';
import { SCHEDULE_COLUMNS, showSchedule } from './schedule-view.ts';

/** How many jobs `cnapi schedule get` shows at most. */
const JOBS_SHOWN = 5;

export function scheduleCommand(runner: CommandRunner): Command {
  const ofOne = (name: string, description: string) =>
    new Command(name).description(description).argument('<schedule>', 'id, or the beginning of one');
  return new Command('schedule')
    .description('Manages schedules: push jobs that start at a time, or at the times of a cron expression.')
    .addCommand(createCommand(runner))
    .addCommand(
      withExamples(
        new Command('list')
          .description('Lists schedules, newest first.')
          .option('--limit <count>', `at most this many, up to ${MAX_SCHEDULES}`, '100')
          .action(runner.action(list)),
        ['cnapi schedule list'],
      ),
    )
    .addCommand(
      withExamples(
        ofOne(
          'get',
          `Shows a schedule, its last and its next time, its ${JOBS_SHOWN} newest jobs, and who created and changed it.`,
        ).action(runner.action(get)),
        ['cnapi schedule get 5c4e'],
      ),
    )
    .addCommand(updateCommand(runner))
    .addCommand(scheduleRunCommand(runner))
    .addCommand(
      withExamples(
        ofOne('pause', 'Pauses a schedule: it starts no jobs until it is resumed.').action(
          runner.action((context, [text]) => change(context, String(text), 'PausePushSchedule')),
        ),
        ['cnapi schedule pause 5c4e'],
      ),
    )
    .addCommand(
      withExamples(
        ofOne(
          'resume',
          'Resumes a paused schedule: it continues with its next time, and the times that passed meanwhile start no job.',
        ).action(runner.action((context, [text]) => change(context, String(text), 'ResumePushSchedule'))),
        ['cnapi schedule resume 5c4e'],
      ),
    )
    .addCommand(
      withExamples(
        new Command('delete')
          .description('Deletes schedules. The jobs that they started stay and go on.')
          .argument('<schedule...>', 'ids, or beginnings of them')
          .action(runner.action(remove)),
        ['cnapi schedule delete 5c4e'],
      ),
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
  const schedule = await context.client.ask(pushScheduleContracts.GetPushSchedule, { id });
  if (context.output.json || schedule.last_job === undefined) return showSchedule(context, schedule);
  const jobs = await newestPushJobs(context, { count: JOBS_SHOWN + 1, schedule: id });
  showSchedule(context, withLastJobOf(schedule, jobs));
  showJobs(context, id, jobs);
}

/** The schedule with its last job as in the list, which was read later: the job may have ended. */
function withLastJobOf(schedule: PushSchedule, jobs: readonly PushJob[]): PushSchedule {
  const last = jobs.find(({ id }) => id === schedule.last_job);
  return last === undefined ? schedule : { ...schedule, last_job_status: last.status, last_job_counts: last.counts };
}

/** Shows how the newest of these jobs ended. */
function showJobs({ output }: Context, schedule: string, jobs: readonly PushJob[]): void {
  if (jobs.length === 0) return;
  output.line('');
  output.table(JOB_COLUMNS, jobs.slice(0, JOBS_SHOWN));
  if (jobs.length > JOBS_SHOWN) output.note(`cnapi job list --schedule ${schedule} lists them all`);
}

async function change(context: Context, text: string, how: 'PausePushSchedule' | 'ResumePushSchedule'): Promise<void> {
  const id = await findSchedule(context, text);
  showSchedule(context, await context.client.ask(pushScheduleContracts[how], { id }));
}

async function remove(context: Context, [given]: readonly unknown[]): Promise<number> {
  const { client, output } = context;
  // All are found before the first is deleted, so that an unknown id changes nothing.
  const ids = await Array.fromAsync(given as string[], (text) => findSchedule(context, text));
  return deleteEach(output, 'schedule', ids, (id) => client.delete(pushScheduleContracts.DeletePushSchedule, { id }));
}

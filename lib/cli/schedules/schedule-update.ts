/** `cnapi schedule update`: other times, another overlap policy, or another job. */
import { Command, Option } from 'commander';
import { withoutUndefined } from '../../platform/defined-fields.ts';
import { pushScheduleContracts } from '../../protocol/api/push/schedules.ts';
import { type CommandRunner, collectValues, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findSchedule } from '../lookup/find-schedule.ts';
import { findTargets, targetFieldsOf } from '../lookup/targets.ts';
import { buildJobFields, type PushJobOptions, requireCommand } from '../push-jobs/job-options.ts';
import {
  checkNoSecrets,
  parseTimeOptions,
  type TimeOptions,
  withScheduledJobOptions,
  withTimeOptions,
} from '../push-jobs/schedule-create.ts';

import { UsageError } from '../terminal/command-errors.ts';
import { showSchedule } from './schedule-view.ts';

interface UpdateOptions extends PushJobOptions, TimeOptions {
  without?: string[];
}

/** What --without removes: options of the job, and their names in the body of POST /push-jobs. */
const REMOVABLE = {
  quorum: 'quorum',
  concurrency: 'concurrency',
  'start-rate': 'start_rate',
  'max-fail': 'max_failures',
  timeout: 'run_timeout_ms',
  'node-timeout': 'node_timeout_ms',
  'voting-timeout': 'voting_timeout_ms',
  ticket: 'ticket',
  env: 'env',
  file: 'file',
  capture: 'capture_output',
  user: 'user',
  dir: 'dir',
} as const;

const MORE = `
What you do not give stays as it is. --at or --cron replaces the times, --env replaces all variables of the command, and a server or query \
replaces all servers. The next time stays as it is unless the times change. A time that waits for the end of the last job starts \
the new job.

If you change the job, later jobs run in your name, not in the name of the caller who created the schedule.

Each job is that of the schedule before the update or after it, never a mixture.
`;

export function updateCommand(runner: CommandRunner): Command {
  const command = withScheduledJobOptions(
    withTimeOptions(
      new Command('update')
        .description('Changes the times, the overlap policy or the job of a schedule.')
        .usage('[options] <schedule> [query|server...] [-- command]')
        .argument('<schedule>', 'id, or the beginning of one')
        .argument('[query|server...]', 'name=pattern as in --where; or uuids, beginnings of them, or hostnames'),
    )
      .option('--capture', 'set capture_output of its jobs, for programs that ask for it; output is kept in any case')
      .addOption(
        new Option('--without <option>', 'remove this option of its job; may be repeated').argParser(repeatedRemovable),
      ),
  ).action(
    runner.action(
      (context, [text, names], options: UpdateOptions) => update(context, String(text), names as string[], options),
      { rest: true },
    ),
  );
  // Defaults are those of a new schedule: what is not given stays.
  for (const option of command.options) option.description = option.description.replace(/ \(default: .*\)$/, '');
  return withExamples(withExplanation(command, MORE), [
    'cnapi schedule update 5c4e --cron @weekly',
    'cnapi schedule update 5c4e --overlap queue --without concurrency',
    "cnapi schedule update 5c4e 'hostname=web-*' --quorum 80% -- ./upgrade.sh",
  ]);
}

/** @throws UsageError */
function repeatedRemovable(text: string, others: string[] | undefined): string[] {
  if (Object.hasOwn(REMOVABLE, text)) return collectValues(text, others);
  throw new UsageError(`--without ${text} is not one of ${Object.keys(REMOVABLE).join(', ')}`);
}

async function update(context: Context, text: string, names: readonly string[], options: UpdateOptions): Promise<void> {
  const { client, clock } = context;
  checkNoSecrets(options);
  const times = parseTimeOptions(options, clock.wallTime());
  const { overlap } = options;
  const job = await changesOf(context, names, options);
  if ([...Object.values(times), overlap, job].every((value) => value === undefined))
    throw new UsageError('What should change? Give an option, such as --cron @daily, or a command after --');
  const id = await findSchedule(context, text);
  showSchedule(context, await client.ask(pushScheduleContracts.UpdatePushSchedule, { id, ...times, overlap, job }));
}

/** Members of its job; undefined: it stays. @throws UsageError */
async function changesOf(context: Context, names: readonly string[], options: UpdateOptions) {
  const { all, where, group, fromJob, status, without = [] } = options;
  const namesServers = names.length > 0 || [all, where, group, fromJob, status].some((one) => one !== undefined);
  const command = context.rest === undefined ? undefined : requireCommand(context);
  const fields: Readonly<Record<string, unknown>> = { command, ...(await buildJobFields(context, options, undefined)) };
  const removed = without.map((option) => [option, REMOVABLE[option as keyof typeof REMOVABLE]] as const);
  const [both] = removed.find(([, field]) => fields[field] !== undefined) ?? [];
  if (both !== undefined) throw new UsageError(`--${both} and --without ${both} cannot be combined`);
  const job = {
    ...Object.fromEntries(removed.map(([, field]) => [field, null])),
    ...withoutUndefined(fields),
    ...(namesServers ? targetFieldsOf(await findTargets(context, names, options)) : {}),
  };
  return Object.keys(job).length === 0 ? undefined : job;
}

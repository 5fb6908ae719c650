/** `cnapi job change`, `add`, `abort` and `delete`: what is done to a push job that exists. */
import { Command } from 'commander';
import type { PushJob } from '../../protocol/api/push/job-schemas.ts';
import { pushJobContracts } from '../../protocol/api/push/jobs.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { deleteEach } from '../invocation/each.ts';
import { findServers } from '../lookup/find.ts';
import { findPushJob } from '../lookup/find-push-job.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { parseCount, parseRate } from '../terminal/count.ts';
import { parseDuration } from '../terminal/duration.ts';
import { parseAmount, parseQuorum, percentageOf } from './amounts.ts';

/** Removes a limit. */
const NONE = 'none';

interface ChangeOptions {
  quorum?: string;
  concurrency?: string;
  startRate?: string;
  maxFail?: string;
  timeout?: string;
  votingTimeout?: string;
}

export function changeCommand(runner: CommandRunner): Command {
  const command = new Command('change')
    .description('Changes the quorum, the limits or the timeouts of a push job that has not ended.')
    .argument('<job>', 'id, or the beginning of one')
    .option(
      '--quorum <count>',
      'while it votes: how many servers must be ready before the command starts on any: 17, or 80%',
    )
    .option('--concurrency <count>', 'run on at most this many servers at the same time, or none for no limit')
    .option('--start-rate <rate>', 'start at most this many per second, or none for no limit')
    .option('--max-fail <count>', 'stop starting nodes when more than this have failed: 3, 5%, or none for no limit')
    .option('--timeout <duration>', 'end the job, and commands that run, as timed_out after this time from its start')
    .option('--voting-timeout <duration>', 'how long to wait for votes, from its creation')
    .action(runner.action(change));
  return withExamples(command, [
    'cnapi job change c0ff --quorum 60%',
    'cnapi job change c0ff --concurrency 50 --max-fail none',
    'cnapi job change c0ff --timeout 2h',
  ]);
}

async function change(context: Context, [text]: readonly unknown[], options: ChangeOptions): Promise<void> {
  const { client, output } = context;
  const { concurrency, startRate, maxFail, timeout, votingTimeout } = options;
  const limit = <Value>(text: string | undefined, parse: (given: string) => Value) =>
    text === undefined ? undefined : text === NONE ? null : parse(text);
  const changes = {
    quorum: parseQuorum(options.quorum),
    concurrency: limit(concurrency, (text) => parseCount(text, '--concurrency')),
    start_rate: limit(startRate, (text) => parseRate(text, '--start-rate')),
    voting_timeout_ms: votingTimeout === undefined ? undefined : parseDuration(votingTimeout, '--voting-timeout'),
    run_timeout_ms: timeout === undefined ? undefined : parseDuration(timeout, '--timeout'),
  };
  const maxFailures = limit(maxFail, (text) => parseAmount(text, '--max-fail'));
  if ([maxFailures, ...Object.values(changes)].every((value) => value === undefined))
    throw new UsageError('What should change? Give an option, such as --timeout 2h');
  const id = await findPushJob(context, String(text));
  const before = maxFailures?.percent === undefined ? undefined : await client.ask(pushJobContracts.GetPushJob, { id });
  const job = await client.ask(pushJobContracts.ChangePushJob, {
    id,
    ...changes,
    max_failures: maxFailures && failuresOf(maxFailures, before),
  });
  if (output.json) output.document(job);
  else output.line(`changed push job ${id}`);
}

const failuresOf = (
  { percent, count }: ReturnType<typeof parseAmount>,
  job: PushJob | undefined,
): number | undefined => (percent === undefined ? count : percentageOf(percent, job?.node_count ?? 0));

export function addCommand(runner: CommandRunner): Command {
  const command = new Command('add')
    .description(
      'Adds servers to a push job that votes or runs, until its voting timeout. It takes none while it waits for a lock.',
    )
    .argument('<job>', 'id, or the beginning of one')
    .argument('<server...>', 'uuids, beginnings of them, or hostnames')
    .action(runner.action(add));
  return withExamples(command, ['cnapi job add c0ff web-21 web-22']);
}

async function add(context: Context, [text, names]: readonly unknown[]): Promise<void> {
  const { client, output } = context;
  const id = await findPushJob(context, String(text));
  const servers = await findServers(client, names as string[]);
  const job = await client.ask(pushJobContracts.AddPushNodes, { id, servers: servers.map(({ uuid }) => uuid) });
  if (output.json) output.document(job);
  else output.line(`push job ${id} has ${job.node_count} nodes and needs ${job.quorum} of them`);
}

export function abortCommand(runner: CommandRunner): Command {
  const command = new Command('abort')
    .description(
      'Ends a push job, or only its nodes that are named: nothing more starts, and running commands are stopped.',
    )
    .argument('<job>', 'id, or the beginning of one')
    .argument('[server...]', 'only on these servers; the job continues. Uuids, beginnings of them, or hostnames')
    .option('--soft', 'let running commands end')
    .action(runner.action(abort));
  return withExamples(command, [
    'cnapi job abort c0ff',
    'cnapi job abort c0ff --soft',
    'cnapi job abort c0ff web-1 web-2',
  ]);
}

async function abort(context: Context, [text, names]: readonly unknown[], { soft }: { soft?: boolean }): Promise<void> {
  const { client, output } = context;
  const id = await findPushJob(context, String(text));
  const servers = await findServers(client, names as string[]);
  const job = await client.ask(pushJobContracts.AbortPushJob, {
    id,
    ...(soft ? { soft: 'true' } : {}),
    ...(servers.length === 0 ? {} : { nodes: servers.map(({ uuid }) => uuid) }),
  });
  if (output.json) return output.document(job);
  if (servers.length === 0) output.line(`abort of push job ${id} requested`);
  else
    output.line(
      `abort of push job ${id} requested on ${servers.length} server${servers.length === 1 ? '' : 's'}; the job continues`,
    );
}

export function deleteCommand(runner: CommandRunner): Command {
  const command = new Command('delete')
    .description('Deletes push jobs that have ended. The tasks of their nodes stay, with what they wrote.')
    .argument('<job...>', 'ids, or beginnings of them')
    .action(runner.action(remove));
  return withExamples(command, ['cnapi job delete c0ff']);
}

async function remove(context: Context, [given]: readonly unknown[]): Promise<number> {
  const { client, output } = context;
  // All are found before the first is deleted, so that an unknown id changes nothing.
  const ids = await Array.fromAsync(given as string[], (text) => findPushJob(context, text));
  return deleteEach(output, 'push job', ids, (id) => client.delete(pushJobContracts.DeletePushJob, { id }));
}

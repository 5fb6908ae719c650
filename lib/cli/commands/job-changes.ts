/** `cnapi job change`, `add` and `abort`: changes to a push job that goes on, or its end. */
import { Command } from 'commander';
import { type PushJob, pushJobContracts } from '../../protocol/api/push-jobs.ts';
import { type CommandRunner, examples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServers } from '../lookup/find.ts';
import { amountOf, quorumOf } from '../push/amounts.ts';
import { findJob } from '../push/find-job.ts';
import { parseCount, parseRate } from '../terminal/count.ts';
import { parseDuration } from '../terminal/duration.ts';
import { UsageError } from '../terminal/usage-error.ts';

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
    .description('Changes a push job that votes or runs.')
    .argument('<job>', 'id, or the beginning of one')
    .option('--quorum <count>', 'while it votes: how many must be ready before one starts: 17, or 80%')
    .option('--concurrency <count>', 'on this many servers at the same time, or none for no limit')
    .option('--start-rate <rate>', 'start at most this many per second, or none for no limit')
    .option('--max-fail <count>', 'stop starting nodes when more than this have failed: 3, 5%, or none for no limit')
    .option(
      '--timeout <duration>',
      'abort the job after this time from its start; commands that run already get no more time',
    )
    .option('--voting-timeout <duration>', 'how long to wait for votes, from its creation')
    .action(runner.action(change));
  return examples(command, [
    'cnapi job change c0ff --quorum 60%',
    'cnapi job change c0ff --concurrency 50 --max-fail none',
    'cnapi job change c0ff --timeout 2h',
  ]);
}

async function change(context: Context, [text]: readonly unknown[], options: ChangeOptions): Promise<void> {
  const { client, output } = context;
  if (Object.keys(options).length === 0)
    throw new UsageError('What should change? Give an option, such as --timeout 2h');
  const { concurrency, startRate, maxFail, timeout, votingTimeout } = options;
  const limit = <Value>(given: string | undefined, parse: (given: string) => Value) =>
    given === undefined ? undefined : given === NONE ? null : parse(given);
  const changes = {
    quorum: quorumOf(options.quorum),
    concurrency: limit(concurrency, (given) => parseCount(given, '--concurrency')),
    start_rate: limit(startRate, (given) => parseRate(given, '--start-rate')),
    voting_timeout_ms: votingTimeout === undefined ? undefined : parseDuration(votingTimeout, '--voting-timeout'),
    run_timeout_ms: timeout === undefined ? undefined : parseDuration(timeout, '--timeout'),
  };
  const maxFailures = limit(maxFail, (given) => amountOf(given, '--max-fail'));
  if ([maxFailures, ...Object.values(changes)].every((value) => value === undefined))
    throw new UsageError('What should change? Give an option, such as --timeout 2h');
  const id = await findJob(context, String(text));
  const before = maxFailures?.percent === undefined ? undefined : await client.ask(pushJobContracts.GetPushJob, { id });
  const job = await client.ask(pushJobContracts.ChangePushJob, {
    id,
    ...changes,
    max_failures: maxFailures && failuresOf(maxFailures, before),
  });
  if (output.json) output.document(job);
  else output.line(`${id} is changed`);
}

const failuresOf = ({ percent, count }: ReturnType<typeof amountOf>, job: PushJob | undefined): number | undefined =>
  percent === undefined ? count : Math.floor((percent / 100) * (job?.node_count ?? 0));

export function addCommand(runner: CommandRunner): Command {
  const command = new Command('add')
    .description('Adds servers to a push job that votes or runs, until its voting timeout.')
    .argument('<job>', 'id, or the beginning of one')
    .argument('<server...>', 'uuids, beginnings of them, or hostnames')
    .action(runner.action(add));
  return examples(command, ['cnapi job add c0ff web-21 web-22']);
}

async function add(context: Context, [text, names]: readonly unknown[]): Promise<void> {
  const { client, output } = context;
  const id = await findJob(context, String(text));
  const servers = await findServers(client, names as string[]);
  const job = await client.ask(pushJobContracts.AddPushNodes, { id, servers: servers.map(({ uuid }) => uuid) });
  if (output.json) output.document(job);
  else output.line(`${id} has ${job.node_count} nodes and needs ${job.quorum} of them`);
}

export function abortCommand(runner: CommandRunner): Command {
  const command = new Command('abort')
    .description(
      'Ends a push job, or only its nodes that are named: nothing more starts, and running commands are stopped.',
    )
    .argument('<job>', 'id, or the beginning of one')
    .argument('[server...]', 'only on these servers; the job goes on. Uuids, beginnings of them, or hostnames')
    .option('--soft', 'let running commands end')
    .action(runner.action(abort));
  return examples(command, ['cnapi job abort c0ff', 'cnapi job abort c0ff --soft', 'cnapi job abort c0ff web-1 web-2']);
}

async function abort(context: Context, [text, names]: readonly unknown[], { soft }: { soft?: boolean }): Promise<void> {
  const { client, output } = context;
  const id = await findJob(context, String(text));
  const servers = await findServers(client, names as string[]);
  const job = await client.ask(pushJobContracts.AbortPushJob, {
    id,
    ...(soft ? { soft: 'true' } : {}),
    ...(servers.length === 0 ? {} : { nodes: servers.map(({ uuid }) => uuid) }),
  });
  if (output.json) return output.document(job);
  if (servers.length === 0) output.line(`${id} is to be aborted`);
  else output.line(`${id} is to be aborted on ${servers.length} server${servers.length === 1 ? '' : 's'}; it goes on`);
}

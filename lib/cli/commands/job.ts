/** `cnapi job`: push jobs, one command on many servers after enough of them have agreed. */
import { createInterface } from 'node:readline/promises';
import { Command } from 'commander';
import { type PushJob, type PushNode, pushJobContracts } from '../../protocol/api/push-jobs.ts';
import { type CommandRunner, examples, explained, repeated } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServer } from '../lookup/find.ts';
import { type TargetOptions, targetsOf } from '../lookup/targets.ts';
import { amountOf, quorumOf } from '../push/amounts.ts';
import { findJob, MAX_JOBS, nodesOf } from '../push/find-job.ts';
import { hasEnded, JOB_COLUMNS, NODE_COLUMNS, progressOf, summaryOf, wentWell } from '../push/job-progress.ts';
import { parseCount, parseRate } from '../terminal/count.ts';
import { parseDuration } from '../terminal/duration.ts';
import { escapeControls, escapeControlsInLines } from '../terminal/escape-controls.ts';
import { exitCodeOfSignal, onEndingSignal } from '../terminal/signals.ts';
import { EXIT, UsageError } from '../terminal/usage-error.ts';
import { abortCommand, addCommand, changeCommand } from './job-changes.ts';

const LOOK_MS = 500;

interface StartOptions extends TargetOptions {
  quorum?: string;
  concurrency?: string;
  startRate?: string;
  maxFail?: string;
  timeout?: string;
  votingTimeout?: string;
  env?: string[];
  user?: string;
  dir?: string;
  fromJob?: string;
  status?: string;
  dryRun?: boolean;
  detach?: boolean;
}

export function jobCommand(runner: CommandRunner): Command {
  return new Command('job')
    .description('Push jobs: runs one command on many servers, as soon as enough of them have agreed.')
    .addCommand(startCommand(runner))
    .addCommand(statusCommand(runner))
    .addCommand(listCommand(runner))
    .addCommand(outputCommand(runner))
    .addCommand(changeCommand(runner))
    .addCommand(addCommand(runner))
    .addCommand(abortCommand(runner));
}

const MORE = `
All servers are asked whether they can run the command. Nothing starts before as many as --quorum say yes; if they cannot, nothing \
runs at all. A server runs one push job at a time; one that is busy says no.

A single word after -- is passed to sh, so pipes and redirections work. Several words are a command and its arguments; they are \
passed on unchanged. It runs as \
the user of the agent, unless --user is given. CHEF_PUSH_JOB_ID in its environment is the id of the job.

--max-fail 3 or --max-fail 5%: when more nodes have failed, no further node starts, and the job ends as aborted. It needs \
--concurrency or --start-rate, because otherwise all nodes start at once.

The first Ctrl-C asks whether to abort the job or to leave it running; without a terminal it aborts the job. The second one exits.

Exit codes: 0 the job is complete and every node that took part succeeded (nodes that are down or busy do not count: the quorum \
decides about them); 1 otherwise; 2 wrong usage; 128 + N when signal N ended this program.
`;

function startCommand(runner: CommandRunner): Command {
  const command = new Command('start')
    .description('Starts a push job and follows it to its end.')
    .usage('[options] [server...] -- command [argument...]')
    .argument('[server...]', 'uuids, beginnings of them, or hostnames')
    .option('--all', 'on all servers')
    .option(
      '--where <name=pattern>',
      'on the servers with this property, as in cnapi servers; may be repeated',
      repeated,
    )
    .option('--from-job <job>', 'on the servers of this earlier push job')
    .option('--status <status>', 'with --from-job: only its nodes with this status, such as failed')
    .option('--quorum <count>', 'how many must be ready before one starts: 17, or 80% (default: all)')
    .option('--concurrency <count>', 'on this many servers at the same time (default: all)')
    .option('--start-rate <rate>', 'start at most this many per second, such as 20, or 0.1 (default: any)')
    .option('--max-fail <count>', 'stop starting nodes when more than this have failed: 3, or 5%')
    .option('--timeout <duration>', 'abort the job after this time from its start (default: 1h)')
    .option('--voting-timeout <duration>', 'how long to wait for votes (default: 1m)')
    .option('--env <name=value>', 'set this variable for the command; may be repeated', repeated)
    .option('--user <name>', 'run the command as this user')
    .option('--dir <path>', 'run the command in this directory')
    .option('--dry-run', 'list the servers and start nothing')
    .option('-d, --detach', 'print the id of the job and do not wait')
    .action(runner.action(start, { rest: true }));
  return examples(explained(command, MORE), [
    "cnapi job start --where 'hostname=web-*' --quorum 80% -- uptime",
    'cnapi job start --all --concurrency 20 --max-fail 5% -- ./upgrade.sh',
    'cnapi job start --from-job c0ff --status failed -- ./upgrade.sh',
  ]);
}

async function start(context: Context, [names]: readonly unknown[], options: StartOptions): Promise<number> {
  const { client, output, rest } = context;
  const servers = await serversOf(context, names as string[], options);
  const { percent, count } = amountOf(options.maxFail, '--max-fail');
  const maxFailures = percent === undefined ? count : Math.floor((percent / 100) * servers.length);
  if (maxFailures !== undefined && options.concurrency === undefined && options.startRate === undefined)
    throw new UsageError('--max-fail needs --concurrency or --start-rate: otherwise all nodes start at once');
  if (options.dryRun) {
    if (output.json) output.document(servers);
    else for (const { uuid, hostname } of servers) output.line(`${uuid}  ${escapeControls(hostname ?? '')}`.trimEnd());
    return EXIT.ok;
  }
  const command = commandOf(rest ?? []);
  if (command === '')
    throw new UsageError('Which command should run? Write it after --, as in cnapi job start --all -- uptime');
  const ms = (text: string | undefined, option: string) =>
    text === undefined ? undefined : parseDuration(text, option);
  const env = Object.fromEntries((options.env ?? []).map(variableOf));
  const job = await client.ask(pushJobContracts.CreatePushJob, {
    command,
    servers: servers.map(({ uuid }) => uuid),
    quorum: quorumOf(options.quorum),
    concurrency: options.concurrency === undefined ? undefined : parseCount(options.concurrency, '--concurrency'),
    start_rate: options.startRate === undefined ? undefined : parseRate(options.startRate, '--start-rate'),
    max_failures: maxFailures,
    run_timeout_ms: ms(options.timeout, '--timeout'),
    voting_timeout_ms: ms(options.votingTimeout, '--voting-timeout'),
    ...(Object.keys(env).length === 0 ? {} : { env }),
    user: options.user,
    dir: options.dir,
  });
  if (options.detach) {
    if (output.json) output.document(job);
    else output.line(job.id);
    return EXIT.ok;
  }
  output.note(`push job ${job.id} asks ${servers.length} server${servers.length === 1 ? '' : 's'}`);
  return follow(context, job);
}

/** Until the job ends, or the user leaves it. */
async function follow(context: Context, job: PushJob): Promise<number> {
  const { client, clock, output } = context;
  let leftWith: number | undefined;
  const left = new AbortController();
  const stopListening = onEndingSignal((signal, before) => {
    const leave = () => {
      leftWith = exitCodeOfSignal(signal);
      left.abort();
    };
    if (before > 0 || signal === 'SIGHUP') return leave();
    void askWhatToDo(context, job.id, left.signal).then((isToAbort) => (isToAbort ? undefined : leave()));
  });
  let shown = '';
  let current = job;
  while (!hasEnded(current) && !left.signal.aborted) {
    await clock.sleep(LOOK_MS, left.signal);
    current = await client.ask(pushJobContracts.GetPushJob, { id: job.id });
    const progress = progressOf(current);
    if (progress !== shown) output.note(progress);
    shown = progress;
  }
  stopListening();
  if (leftWith !== undefined) {
    output.complain(`push job ${job.id} goes on; see cnapi job status ${job.id.slice(0, 8)}`);
    return leftWith;
  }
  await show(context, current);
  return wentWell(current) ? EXIT.ok : EXIT.failed;
}

/** Aborts the job if the user wants that; without a terminal nobody can be asked. */
async function askWhatToDo({ client, output }: Context, id: string, signal: AbortSignal): Promise<boolean> {
  if (process.stdin.isTTY) {
    const asking = createInterface({ input: process.stdin, output: process.stderr });
    const answer = await asking.question('abort the job on all servers? [y/N] ', { signal }).catch(() => '');
    asking.close();
    if (!/^y(es)?$/i.test(answer.trim())) return false;
  }
  output.complain('aborting the job; press Ctrl-C again to leave without waiting');
  await client.ask(pushJobContracts.AbortPushJob, { id }).catch((error: Error) => output.complain(error.message));
  return true;
}

function statusCommand(runner: CommandRunner): Command {
  const command = new Command('status')
    .description('Shows a push job: each node with its status, or counts.')
    .argument('<job>', 'id, or the beginning of one')
    .option('--summary', 'only how many nodes have each status')
    .option('--node <server>', 'only this node')
    .action(runner.action(status));
  return examples(command, [
    'cnapi job status c0ff',
    'cnapi job status c0ff --summary',
    'cnapi job status c0ff --node web-1',
  ]);
}

async function status(
  context: Context,
  [text]: readonly unknown[],
  { summary, node }: { summary?: boolean; node?: string },
): Promise<void> {
  const { client, output } = context;
  const job = await client.ask(pushJobContracts.GetPushJob, { id: await findJob(context, String(text)) });
  if (node !== undefined) {
    const { uuid } = await findServer(client, node);
    const found = (await nodesOf(context, job.id)).find(({ server_uuid }) => server_uuid === uuid);
    if (found === undefined) throw new UsageError(`${escapeControls(node)} has no part in push job ${job.id}`);
    return output.json ? output.document(found) : output.table(NODE_COLUMNS, [found]);
  }
  if (output.json) return output.document(summary ? job : { ...job, nodes: await nodesOf(context, job.id) });
  if (summary) return showSummary(output, job);
  await show(context, job);
}

async function show(context: Context, job: PushJob): Promise<void> {
  const { output } = context;
  if (output.json) return output.document({ ...job, nodes: await nodesOf(context, job.id) });
  output.table(NODE_COLUMNS, await nodesOf(context, job.id));
  output.line('');
  showSummary(output, job);
}

function showSummary(output: Context['output'], job: PushJob): void {
  output.facts([
    ['job', job.id],
    ['status', job.reason === undefined ? job.status : `${job.status}: ${job.reason}`],
    ['command', job.command],
    ['quorum', `${job.quorum} of ${job.node_count}`],
  ]);
  for (const line of summaryOf(job)) output.line(line);
}

function listCommand(runner: CommandRunner): Command {
  const command = new Command('list')
    .description('Lists push jobs, newest first.')
    .option('--limit <count>', `at most this many, up to ${MAX_JOBS}`, '20')
    .action(runner.action(list));
  return examples(command, ['cnapi job list', 'cnapi job list --limit 100 --json']);
}

async function list({ client, output }: Context, _: readonly unknown[], options: { limit: string }): Promise<void> {
  const limit = parseCount(options.limit, '--limit', MAX_JOBS);
  const jobs = await client.ask(pushJobContracts.ListPushJobs, { limit });
  if (output.json) return output.document(jobs);
  output.table(JOB_COLUMNS, jobs);
  if (jobs.length === 0) output.note('There is no push job');
}

function outputCommand(runner: CommandRunner): Command {
  const command = new Command('output')
    .description("Shows what a push job's command wrote on a node.")
    .argument('<job>', 'id, or the beginning of one')
    .argument('<server>', 'uuid, the beginning of one, or hostname')
    .action(runner.action(showOutput));
  return examples(command, ['cnapi job output c0ff web-1']);
}

async function showOutput(context: Context, [text, name]: readonly unknown[]): Promise<void> {
  const { client, output } = context;
  const id = await findJob(context, String(text));
  const { uuid } = await findServer(client, String(name));
  const node = (await nodesOf(context, id)).find(({ server_uuid }) => server_uuid === uuid);
  if (node === undefined) throw new UsageError(`${escapeControls(String(name))} has no part in push job ${id}`);
  if (node.task_id === undefined) throw new UsageError(`The command did not start there: the node is ${node.status}`);
  const task = await client.task(node.task_id);
  if (output.json) return output.document(task);
  for (const { event } of task.history) {
    if (typeof event.stdout === 'string') output.raw(safeFor(process.stdout, event.stdout));
    if (typeof event.stderr === 'string') process.stderr.write(safeFor(process.stderr, event.stderr));
  }
}

const safeFor = ({ isTTY }: NodeJS.WriteStream, text: string): string => (isTTY ? escapeControlsInLines(text) : text);

async function serversOf(context: Context, names: readonly string[], options: StartOptions) {
  const { fromJob, status: wanted } = options;
  if (fromJob === undefined) {
    if (wanted !== undefined) throw new UsageError('--status says which nodes of --from-job: give that as well');
    return targetsOf(context.client, names, options);
  }
  if (names.length > 0 || options.all || options.where !== undefined)
    throw new UsageError('--from-job cannot be combined with servers by name, --where and --all');
  const nodes = await nodesOf(context, await findJob(context, fromJob), wanted as PushNode['status'] | undefined);
  if (nodes.length === 0) throw new UsageError('No node of that job matches; nothing was run');
  return nodes.map(({ server_uuid: uuid, name: hostname }) => ({ uuid, hostname }));
}

/** One word is for sh as it is; several are quoted, so that sh passes them on unchanged. */
function commandOf(words: readonly string[]): string {
  const [only = '', ...others] = words;
  return others.length === 0 ? only.trim() : words.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(' ');
}

function variableOf(text: string): [string, string] {
  const [, name, value] = /^([^=]+)=(.*)$/s.exec(text) ?? [];
  if (name === undefined || value === undefined) throw new UsageError(`--env ${text} is not NAME=VALUE`);
  return [name, value];
}

/** `cnapi job start`: starts a push job and follows it. */
import { readFile } from 'node:fs/promises';
import { Command } from 'commander';
import { messageOf } from '../../platform/errors.ts';
import { type PushNode, pushJobContracts } from '../../protocol/api/push-jobs.ts';
import { MAX_PUSH_FILE_BYTES } from '../../protocol/limits.ts';
import { jobVariablesOf, shellCommandOf, variablesOf } from '../exec/program.ts';
import { type CommandRunner, examples, explained, repeated } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { type TargetOptions, targetsOf } from '../lookup/targets.ts';
import { amountOf, quorumOf } from '../push/amounts.ts';
import { findJob, nodesOf } from '../push/find-job.ts';
import { started } from '../push/follow-job.ts';
import { parseCount, parseRate } from '../terminal/count.ts';
import { parseDuration } from '../terminal/duration.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { EXIT, UsageError } from '../terminal/usage-error.ts';

interface StartOptions extends TargetOptions {
  quorum?: string;
  concurrency?: string;
  startRate?: string;
  maxFail?: string;
  timeout?: string;
  nodeTimeout?: string;
  votingTimeout?: string;
  env?: string[];
  secretEnv?: string[];
  file?: string;
  capture?: boolean;
  user?: string;
  dir?: string;
  fromJob?: string;
  status?: string;
  dryRun?: boolean;
  detach?: boolean;
}

const MORE = `
All servers are asked whether they can run the command. Nothing starts before as many as --quorum say yes; if they cannot, nothing \
runs at all. A server runs one push job at a time; one that is busy says no.

A single word after -- is passed to sh, so pipes and redirections work. Several words are a command and its arguments; they are \
passed on unchanged. It runs as \
the user of the agent, unless --user is given. CHEF_PUSH_JOB_ID in its environment is the id of the job.

--max-fail 3 or --max-fail 5%: when more nodes have failed, no further node starts, and the job ends as aborted. It needs \
--concurrency or --start-rate, because otherwise all nodes start at once.

Output is kept with each node's task, whatever the options: cnapi job output shows it. With --capture it is also shown live, each \
line with the name of its server, and the job has capture_output, which tells other programs that its output is wanted.

The first Ctrl-C asks whether to abort the job or to leave it running; without a terminal it aborts the job. The second one exits.

Exit codes: 0 the job is complete and every node that took part succeeded (nodes that are down or busy do not count: the quorum \
decides about them); 1 otherwise; 2 wrong usage; 128 + N when signal N ended this program.
`;

export function startCommand(runner: CommandRunner): Command {
  const command = new Command('start')
    .description('Starts a push job and follows it to its end.')
    .usage('[options] [query|server...] -- command [argument...]')
    .argument('[query|server...]', 'name=pattern as in --where; or uuids, beginnings of them, or hostnames')
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
    .option('--node-timeout <duration>', 'end each command after this time from its own start')
    .option('--voting-timeout <duration>', 'how long to wait for votes (default: 1m)')
    .option('--env <name=value>', 'set this variable for the command; may be repeated', repeated)
    .option(
      '--secret-env <name>',
      'pass this variable of your own environment, or NAME=VALUE; only the agents see it. May be repeated',
      repeated,
    )
    .option('--file <path>', 'send this file, at most 100,000 bytes; CHEF_PUSH_JOB_FILE names it to the command')
    .option('--user <name>', 'run the command as this user')
    .option('--dir <path>', 'run the command in this directory')
    .option('--capture', 'show what the command writes on each server, as it writes it')
    .option('--dry-run', 'list the servers and start nothing')
    .option('-d, --detach', 'print the id of the job and do not wait')
    .action(runner.action(start, { rest: true }));
  return examples(explained(command, MORE), [
    "cnapi job start 'hostname=web-*' --quorum 80% -- uptime",
    "cnapi job start 'traits.role=web' 'status=running' --capture -- chef-client",
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
  const command = shellCommandOf(rest ?? []);
  if (command === '')
    throw new UsageError('Which command should run? Write it after --, as in cnapi job start --all -- uptime');
  const ms = (text: string | undefined, option: string) =>
    text === undefined ? undefined : parseDuration(text, option);
  const variables = variablesOf(options, context.env);
  const file = await fileOf(options.file);
  const job = await client.ask(pushJobContracts.CreatePushJob, {
    command,
    servers: servers.map(({ uuid }) => uuid),
    quorum: quorumOf(options.quorum),
    concurrency: options.concurrency === undefined ? undefined : parseCount(options.concurrency, '--concurrency'),
    start_rate: options.startRate === undefined ? undefined : parseRate(options.startRate, '--start-rate'),
    max_failures: maxFailures,
    run_timeout_ms: ms(options.timeout, '--timeout'),
    node_timeout_ms: ms(options.nodeTimeout, '--node-timeout'),
    voting_timeout_ms: ms(options.votingTimeout, '--voting-timeout'),
    ...jobVariablesOf(variables),
    file,
    capture_output: options.capture,
    user: options.user,
    dir: options.dir,
  });
  return started(context, { job, servers, detach: options.detach, capture: options.capture });
}

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

/** @throws UsageError */
export async function fileOf(path: string | undefined): Promise<string | undefined> {
  if (path === undefined) return undefined;
  const bytes = await readFile(path).catch((cause: unknown) => {
    throw new UsageError(`--file ${path} cannot be read: ${messageOf(cause)}`, { cause });
  });
  if (bytes.length > MAX_PUSH_FILE_BYTES)
    throw new UsageError(`--file ${path} is larger than ${MAX_PUSH_FILE_BYTES} bytes`);
  return `base64:${bytes.toString('base64')}`;
}

/** The options that describe a push job: of `cnapi job start`, schedules and `cnapi exec`. */
import { readFile } from 'node:fs/promises';
import { type Command, Option } from 'commander';
import { isUuid } from '../../protocol/api/contract/rules.ts';
import { NODE_STATUSES } from '../../protocol/api/push/job-schemas.ts';
import { MAX_PUSH_FILE_BYTES } from '../../protocol/limits.ts';
import { collectValues } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { buildJobVariables, parseVariables, quoteShellCommand } from '../invocation/remote-program.ts';
import { findServer } from '../lookup/find.ts';
import type { TargetOptions } from '../lookup/targets.ts';
import { UsageError, unreadable } from '../terminal/command-errors.ts';
import { parseCount, parseRate } from '../terminal/count.ts';
import { parseDuration } from '../terminal/duration.ts';
import { parseAmount, parseQuorum, percentageOf } from './amounts.ts';

export interface PushJobOptions extends TargetOptions {
  quorum?: string;
  concurrency?: string;
  startRate?: string;
  maxFail?: string;
  timeout?: string;
  nodeTimeout?: string;
  votingTimeout?: string;
  ticket?: string;
  ticketServer?: string;
  ticketTimeout?: string;
  env?: string[];
  secretEnv?: string[];
  file?: string;
  capture?: boolean;
  user?: string;
  dir?: string;
}

export function withJobOptions(command: Command): Command {
  return command
    .option('--all', 'on all servers')
    .option(
      '--where <name=pattern>',
      'on the servers with this property, as in cnapi servers; may be repeated',
      collectValues,
    )
    .option('--group <server-group>', 'on the servers of this server group (see cnapi group)')
    .option('--from-job <job>', 'on the servers of this earlier push job')
    .addOption(nodeStatusOption('with --from-job: only its nodes with this status'))
    .option(
      '--quorum <count>',
      'how many servers must be ready before the command starts on any: 17, or 80% (default: all)',
    )
    .option('--concurrency <count>', 'run on at most this many servers at the same time (default: all)')
    .option('--start-rate <rate>', 'start at most this many per second, such as 20, or 0.1 (default: any)')
    .option('--max-fail <count>', 'stop starting nodes when more than this have failed: 3, or 5%')
    .option('--timeout <duration>', 'end the job as timed_out after this time from its start (default: 1h)')
    .option('--node-timeout <duration>', 'end each command after this time from its own start')
    .option('--voting-timeout <duration>', 'how long to wait for votes (default: 1m)')
    .option('--ticket <scope/id>', 'wait for this lock before the vote, and hold it until the job has ended')
    .option('--ticket-server <server>', 'the server of the lock (default: the whole datacenter)')
    .option('--ticket-timeout <duration>', 'how long to wait for the lock (default: 10m)')
    .option(
      '--env <name=value>',
      'set this variable for the command, at most 64 KiB in all; may be repeated',
      collectValues,
    )
    .option(
      '--secret-env <name>',
      'pass this variable of your own environment, or NAME=VALUE; only the agents see it. May be repeated',
      collectValues,
    )
    .option('--file <path>', 'send this file, at most 100,000 bytes; CHEF_PUSH_JOB_FILE names it to the command')
    .option('--user <name>', 'run the command as this user')
    .option('--dir <path>', 'run the command in this directory, an absolute path');
}

/** Names a status of nodes. */
export const nodeStatusOption = (about: string): Option =>
  new Option('--status <status>', about).choices(NODE_STATUSES);

/**
 * The command after --. Ask for it before the servers are looked up: without -- its words count as
 * names of servers.
 * @throws UsageError
 */
export function requireCommand({ rest = [] }: Pick<Context, 'rest'>): string {
  const command = quoteShellCommand(rest);
  if (command !== '') return command;
  throw new UsageError('Which command should run? Write it after --, as in cnapi job start --all -- uptime');
}

/**
 * The request for the job, without its servers. `nodeCount`: undefined if it is not known.
 * @throws UsageError
 */
export async function buildJobBody(context: Context, options: PushJobOptions, nodeCount: number | undefined) {
  const command = requireCommand(context);
  if (options.maxFail !== undefined && options.concurrency === undefined && options.startRate === undefined)
    throw new UsageError('--max-fail needs --concurrency or --start-rate: otherwise all nodes start concurrently');
  return { command, ...(await buildJobFields(context, options, nodeCount)) };
}

/** The fields of a job that the options set; all others are undefined. @throws UsageError */
export async function buildJobFields(context: Context, options: PushJobOptions, nodeCount: number | undefined) {
  const ms = (text: string | undefined, option: string) =>
    text === undefined ? undefined : parseDuration(text, option);
  return {
    quorum: parseQuorum(options.quorum),
    concurrency: options.concurrency === undefined ? undefined : parseCount(options.concurrency, '--concurrency'),
    start_rate: options.startRate === undefined ? undefined : parseRate(options.startRate, '--start-rate'),
    max_failures: maxFailuresOf(options, nodeCount),
    run_timeout_ms: ms(options.timeout, '--timeout'),
    node_timeout_ms: ms(options.nodeTimeout, '--node-timeout'),
    voting_timeout_ms: ms(options.votingTimeout, '--voting-timeout'),
    ticket: await findJobTicket(context, options),
    ...buildJobVariables(parseVariables(options, context.env)),
    file: await readJobFile(options.file),
    capture_output: options.capture,
    user: options.user,
    dir: options.dir,
  };
}

/** @throws UsageError */
function maxFailuresOf(options: PushJobOptions, nodeCount: number | undefined): number | undefined {
  const { percent, count } = parseAmount(options.maxFail, '--max-fail');
  if (percent !== undefined && nodeCount === undefined)
    throw new UsageError(
      '--max-fail takes no percentage here, because the number of servers is not known yet; give a number',
    );
  return percent === undefined ? count : percentageOf(percent, nodeCount ?? 0);
}

/**
 * The lock that a job is to hold.
 * @throws UsageError
 */
export async function findJobTicket(
  { client }: Context,
  { ticket, ticketServer, ticketTimeout }: { [Name in `ticket${'' | 'Server' | 'Timeout'}`]?: string | undefined },
) {
  if (ticket === undefined) {
    if (ticketServer !== undefined || ticketTimeout !== undefined)
      throw new UsageError('--ticket-server and --ticket-timeout need --ticket');
    return undefined;
  }
  const [, scope, id] = /^([^/]+)\/(.+)$/s.exec(ticket) ?? [];
  if (scope === undefined || id === undefined) {
    const reason = isUuid(ticket) ? ': a push job does not use an existing ticket; it takes one of its own' : '';
    throw new UsageError(`--ticket ${ticket} is not SCOPE/ID, such as rollout/web${reason}`);
  }
  const timeout = ticketTimeout === undefined ? {} : { timeout_ms: parseDuration(ticketTimeout, '--ticket-timeout') };
  const server = ticketServer === undefined ? {} : { server_uuid: (await findServer(client, ticketServer)).uuid };
  return { scope, id, ...server, ...timeout };
}

/** @throws UsageError */
export async function readJobFile(path: string | undefined): Promise<string | undefined> {
  if (path === undefined) return undefined;
  const bytes = await readFile(path).catch(unreadable('--file', path));
  if (bytes.length > MAX_PUSH_FILE_BYTES)
    throw new UsageError(`--file ${path} is larger than ${MAX_PUSH_FILE_BYTES} bytes`);
  return `base64:${bytes.toString('base64')}`;
}

/** `cnapi exec`: one command on many servers, with its output as it comes. */
import { readFile } from 'node:fs/promises';
import { text as readAll } from 'node:stream/consumers';
import { Command } from 'commander';
import { messageOf } from '../../platform/errors.ts';
import type { NamedServer } from '../../protocol/api/servers.ts';
import { MAX_TASK_TIMEOUT_MS } from '../../protocol/limits.ts';
import { type Ending, type FleetCommand, FleetRun, type Listener } from '../exec/fleet-run.ts';
import { LiveOutput, prefixOf } from '../exec/live-output.ts';
import { type OutputPiece, OutputSequence } from '../exec/output-sequence.ts';
import { exitCodeOf } from '../exec/task-end.ts';
import { UnreadInput } from '../exec/unread-input.ts';
import { type CommandRunner, examples, explained, repeated } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findTicket, labelsOf } from '../lookup/find.ts';
import { type TargetOptions, targetsOf } from '../lookup/targets.ts';
import { parseCount } from '../terminal/count.ts';
import { parseDuration } from '../terminal/duration.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { exitSoon, flushed } from '../terminal/output.ts';
import { exitCodeOfSignal, onEndingSignal } from '../terminal/signals.ts';
import { EXIT, UsageError } from '../terminal/usage-error.ts';

interface Options extends TargetOptions {
  script?: string;
  env?: string[];
  secretEnv?: string[];
  timeout?: string;
  concurrency: string;
  detach?: boolean;
  ticket?: string;
  raw?: boolean;
  prefix?: boolean;
}

const MAX_SCRIPT_BYTES = 1024 * 1024;
const MAX_CONCURRENCY = 500;
const SIGNAL_MS = 200;
/** The words are passed as arguments, so no shell splits them. */
const RUN_WORDS = '#!/bin/sh\nexec "$@"\n';

const MORE = `
Servers are uuids, beginnings of uuids (at least four characters), or hostnames. All of them are looked up first. If one is unknown, nothing runs (exit \
code 2). Several words after -- are a command and its arguments; they are passed on unchanged. A single word is passed to sh, so \
pipes and redirections work. With --script the words are the arguments of the script, whose first line may name an interpreter. \
Commands run as the user of the agent. In production that is root.

On a terminal, control characters in the output are shown as escapes such as \\x1b, unless --raw is given. To a pipe or a file the \
output goes unchanged. With several servers each line begins with the name of its server. Bytes that are not UTF-8 become U+FFFD.

With one server all output is shown: a command that writes faster than about 640 KB a second waits, as it would at a slow \
pipe. With several servers no command waits, and output beyond 1 MiB of a stream may be missing: cnapi keeps the first and \
the last half MiB. Output is also missing if this program reads more slowly than the command writes, or if the connection to \
the server breaks. Missing output is reported on stderr, or as "cut" in --json, with the number of bytes, and the exit code is 4. \
A terminal shows what follows a missing part after two seconds; if the result of the task has that part, it is shown at the end.

The first Ctrl-C cancels the running commands and waits until they have ended. The second Ctrl-C exits at once. SIGTERM does the \
same. When the terminal is lost (SIGHUP) nothing is cancelled: this program exits, running commands continue, and the command is \
not started on servers that still waited for --concurrency. Under nohup this program continues to the end. Ctrl-C does not reach \
it when a script started it in the background.

When the reader of a pipe ends (cnapi exec web-1 -- dmesg | head -1), the running commands are cancelled as with the first Ctrl-C, \
and the exit code is 141. With --detach nothing is cancelled.

The command has no standard input. If this program receives input, it reports an error before anything runs. In a loop, redirect \
its input from /dev/null.

Exit codes with one server: the exit code of the command, once it has one; 128 + N if signal N ended it; 124 if \
its --timeout was over, as timeout(1) has it.
Otherwise: 0 the command ended with 0 on all servers; 1 it failed on some; 2 wrong usage; 3 for some servers no instance could say \
how it ended; 4 it ended with 0 everywhere but some output is missing (also with one server); 128 + N when signal N ended \
this program (130 Ctrl-C, 129 SIGHUP, 143 SIGTERM), 141 when the reader of its output ended.
`;

export function execCommand(runner: CommandRunner): Command {
  const command = new Command('exec')
    .description('Runs a command on servers, many at once, and shows its output as it comes.')
    .usage('[options] [server...] -- command [argument...]')
    .argument('[server...]', 'uuids, beginnings of them, or hostnames')
    .option('--all', 'run on all servers')
    .option(
      '--where <name=pattern>',
      'run on the servers with this property, as in cnapi servers; may be given again',
      repeated,
    )
    .option('--script <file>', 'run this file; - reads it from standard input')
    .option('--env <name=value>', 'set this variable for the command; may be given again', repeated)
    .option(
      '--secret-env <name>',
      'pass this variable of your own environment to the command; nobody else can see its value. May be given again',
      repeated,
    )
    .option('--timeout <duration>', 'kill the command after this time; at most one day (default: 1h)')
    .option('--concurrency <count>', 'run on this many servers at the same time', '32')
    .option('--ticket <uuid>', 'run only while this ticket is active (see cnapi lock)')
    .option('-d, --detach', 'print the ids of the tasks and do not wait')
    .option('--raw', 'write the output to the terminal unchanged, including control characters')
    .option('--no-prefix', 'do not put the name of the server before each line')
    .action(runner.action(exec, { rest: true }));
  return examples(explained(command, MORE), [
    'cnapi exec web-1 -- uptime',
    "cnapi exec web-1 web-2 -- 'df -h / | tail -1'",
    "cnapi exec --where 'hostname=web-*' --timeout 5m -- svcadm restart nginx",
    'cnapi exec --all --script check.sh --concurrency 100 --json',
  ]);
}

async function exec(context: Context, [names]: readonly unknown[], options: Options): Promise<number> {
  const { client, clock, output, random } = context;
  const concurrency = parseCount(options.concurrency, '--concurrency', MAX_CONCURRENCY);
  const input = options.script === '-' ? undefined : new UnreadInput(output);
  const command = await commandOf(context, options);
  const servers = await targetsOf(client, names as string[], options);
  if (options.ticket !== undefined) command.ticketUuid = await findTicket(client, options.ticket);
  await client.learnInstances().catch(() => undefined);
  input?.refuse();
  const listener = listenerOf(context, servers, options);
  const run = new FleetRun({ client, random, listener });
  let interruptedWith: number | undefined;
  let isLeaving = false;
  const stop = onEndingSignal((signal, before) => {
    interruptedWith = exitCodeOfSignal(signal);
    if (isLeaving) return void exitSoon(clock, interruptedWith);
    if (before > 0 || signal === 'SIGHUP') {
      isLeaving = true;
      listener.onLeave();
      return void leave(context, run, { servers, code: interruptedWith });
    }
    output.complain(`cancelling ${run.running.size} of ${servers.length}; press Ctrl-C again to exit without waiting`);
    void run.cancel();
  });
  output.onReaderGone = ({ code }) => {
    if (code !== 'EPIPE' || command.detach) return;
    // A signal that ended the reader as well comes at the same moment, and decides what happens.
    clock.after(SIGNAL_MS, () => {
      if (interruptedWith !== undefined) return;
      interruptedWith = exitCodeOfSignal('SIGPIPE');
      output.note(`the reader of the output has ended; cancelling ${run.running.size} of ${servers.length}`);
      void run.cancel();
    });
  };
  // For one server all output can be shown. For many at full rate it would overload the database.
  if (servers.length === 1 && !command.detach) command.params.paced = true;
  const endings = await run.run(servers, command, concurrency);
  stop();
  input?.close();
  if (servers.length > 1) summarize(context, servers, endings);
  return interruptedWith ?? codeOf(endings, listener.isIncomplete());
}

/** Running tasks continue without this command; no further server is asked. */
async function leave({ output }: Context, run: FleetRun, { servers, code }: Left): Promise<never> {
  const labelOf = createLabelOf(servers);
  for (const [server, id] of run.running)
    output.complain(`left: ${labelOf(server)}: task ${id} may still run; see cnapi task ${id}`);
  for (const server of run.asked)
    output.complain(`left: ${labelOf(server)} may have been given a task; see cnapi tasks ${server.uuid}`);
  if (run.waiting > 0) output.complain(`${run.waiting} of ${servers.length} servers were not asked`);
  await flushed();
  process.exit(code);
}

interface Left {
  servers: readonly NamedServer[];
  code: number;
}

async function commandOf({ rest, env: own }: Context, options: Options): Promise<FleetCommand> {
  const secrets = options.secretEnv ?? [];
  const env = Object.fromEntries([
    ...(options.env ?? []).map(variableOf),
    ...secrets.map((name) => secretOf(own, name)),
  ]);
  const secret = secrets.length === 0 ? {} : { secret_params: secrets.map((name) => `/env/${escaped(name)}`) };
  const timeoutMs = options.timeout === undefined ? undefined : parseDuration(options.timeout, '--timeout');
  if (timeoutMs !== undefined && (timeoutMs < 1 || timeoutMs > MAX_TASK_TIMEOUT_MS))
    throw new UsageError(`--timeout ${options.timeout} is not between 1ms and 1d`);
  const params = { ...(await scriptOf(rest, options.script)), ...(Object.keys(env).length > 0 && { env }), ...secret };
  return { params, timeoutMs, ticketUuid: options.ticket, detach: options.detach === true };
}

function secretOf(env: NodeJS.ProcessEnv, name: string): [string, string] {
  const value = env[name];
  if (value === undefined) throw new UsageError(`--secret-env ${escapeControls(name)}: there is no such variable here`);
  return [name, value];
}

/** Escapes as a JSON Pointer does (RFC 6901). */
const escaped = (key: string): string => key.replaceAll('~', '~0').replaceAll('/', '~1');

async function scriptOf(rest: readonly string[] | undefined, file: string | undefined) {
  if (file !== undefined) return { script: await scriptIn(file), args: [...(rest ?? [])] };
  const [first, ...others] = rest ?? [];
  if (first === undefined || first === '')
    throw new UsageError(
      'Which command should run? Write it after --, as in cnapi exec web-1 -- uptime, or give --script FILE',
    );
  return others.length === 0 ? { script: `${first}\n` } : { script: RUN_WORDS, args: [first, ...others] };
}

async function scriptIn(file: string): Promise<string> {
  const script = await (file === '-' ? readAll(process.stdin) : readFile(file, 'utf8')).catch((cause: unknown) => {
    throw new UsageError(`--script ${file} cannot be read: ${messageOf(cause)}`, { cause });
  });
  if (script.trim() === '') throw new UsageError(`--script ${file} is empty`);
  if (Buffer.byteLength(script) > MAX_SCRIPT_BYTES) throw new UsageError(`--script ${file} is larger than 1 MiB`);
  return script;
}

function variableOf(text: string): [string, string] {
  const [, name, value] = /^([^=]+)=(.*)$/s.exec(text) ?? [];
  if (name === undefined || value === undefined) throw new UsageError(`--env ${text} is not NAME=VALUE`);
  return [name, value];
}

type LabelOf = (server: NamedServer) => string;

function createLabelOf(servers: readonly NamedServer[]): LabelOf {
  const labels = labelsOf(servers);
  return (server) => escapeControls(labels.get(server.uuid) ?? server.uuid);
}

/** `onLeave`: reports nothing more about any server, and shows the output that was held back. */
interface Leavable {
  onLeave(): void;
  /** Some of a server's output is missing. */
  isIncomplete(): boolean;
}

function listenerOf(context: Context, servers: readonly NamedServer[], options: Options): Listener & Leavable {
  const { output } = context;
  const labelOf = createLabelOf(servers);
  const remarks = {
    onBroken: (server: NamedServer, why: string) =>
      output.note(`${labelOf(server)}: ${escapeControls(why)}; continuing at another instance`),
    onNotCancelled: (server: NamedServer, id: string, why: string) =>
      output.complain(`${labelOf(server)}: task ${id} could not be cancelled: ${escapeControls(why)}`),
  };
  return { ...remarks, ...(output.json ? recorded(output) : shown(context, servers, options)) };
}

type Report = Pick<Listener, 'onStart' | 'onOutput' | 'onEnd'> & Leavable;

function recorded(output: Context['output']): Report {
  const sequences = new Map<NamedServer, OutputSequence>();
  let isIncomplete = false;
  const sequenceOf = (server: NamedServer) => made(sequences, server, () => new OutputSequence());
  const record = ({ uuid, hostname }: NamedServer, event: string, about: object) =>
    output.record({ event, server_uuid: uuid, hostname: hostname ?? null, ...about });
  const recordPiece = (server: NamedServer, piece: OutputPiece) => {
    isIncomplete ||= 'cut' in piece;
    record(server, 'output', piece);
  };
  const end = (server: NamedServer, result: unknown) => {
    for (const piece of sequenceOf(server).end(result)) recordPiece(server, piece);
    sequences.delete(server);
  };
  return {
    onStart: (server, id) => record(server, 'start', { task: id }),
    onOutput(server, { data, attempt }) {
      for (const piece of sequenceOf(server).write(data, attempt)) recordPiece(server, piece);
      return output.ready();
    },
    onEnd(server, ending) {
      end(server, resultOf(ending));
      record(server, 'end', recordOf(ending));
    },
    onLeave: () => [...sequences.keys()].forEach((server) => void end(server, undefined)),
    isIncomplete: () => isIncomplete,
  };
}

function shown(context: Context, servers: readonly NamedServer[], options: Options): Report {
  const { output } = context;
  const isOne = servers.length === 1;
  const labelOf = createLabelOf(servers);
  const width = servers.reduce((widest, server) => Math.max(widest, labelOf(server).length), 0);
  const prefix = (server: NamedServer) =>
    isOne || options.prefix === false ? undefined : prefixOf(labelOf(server), width);
  const lives = new Map<NamedServer, LiveOutput>();
  let isIncomplete = false;
  const about = (server: NamedServer) => ({
    raw: options.raw === true,
    prefix: prefix(server),
    label: labelOf(server),
  });
  const liveOf = (server: NamedServer) => made(lives, server, () => new LiveOutput(context, about(server)));
  return {
    onStart(server, id) {
      if (options.detach) output.line(isOne ? id : `${prefix(server) ?? ''}${id}`);
    },
    onOutput(server, event) {
      liveOf(server).write(event);
      return output.ready();
    },
    onEnd(server, ending) {
      const live = liveOf(server);
      live.end(resultOf(ending), ending.id);
      isIncomplete ||= live.isIncomplete;
      lives.delete(server);
      if (ending.kind === 'failed' || ending.kind === 'unknown')
        output.complain(`${labelOf(server)}: ${escapeControls(whyOf(ending))}`);
    },
    onLeave() {
      for (const live of lives.values()) live.end(undefined);
      lives.clear();
    },
    isIncomplete: () => isIncomplete,
  };
}

function made<Key, Value>(all: Map<Key, Value>, key: Key, make: () => Value): Value {
  const value = all.get(key) ?? make();
  all.set(key, value);
  return value;
}

function whyOf(ending: Extract<Ending, { kind: 'failed' | 'unknown' }>): string {
  const request = ending.kind === 'failed' && ending.requestId !== undefined ? ` (request ${ending.requestId})` : '';
  const task = ending.kind === 'unknown' && ending.id !== undefined ? `; see later: cnapi task ${ending.id}` : '';
  return `${ending.why}${request}${task}`;
}

/** Undefined if no instance reported it. */
const resultOf = (ending: Ending): unknown => ('result' in ending ? ending.result : undefined);

function recordOf(ending: Ending): object {
  const { kind, id } = ending;
  const why = 'why' in ending ? { error: ending.why } : {};
  return { outcome: kind, task: id ?? null, exit_code: exitCodeOf(resultOf(ending)) ?? null, ...why };
}

function summarize({ output }: Context, servers: readonly NamedServer[], endings: readonly Ending[]): void {
  const count = (kind: Ending['kind']) => endings.filter((ending) => ending.kind === kind).length;
  const parts = [
    [count('ok'), 'ok'],
    [count('started'), 'started'],
    [count('failed'), 'failed'],
    [count('unknown'), 'not known'],
  ] as const;
  const said = parts.filter(([number]) => number > 0).map(([number, word]) => `${number} ${word}`);
  output.note(`${servers.length} servers: ${said.join(', ')}`);
}

/** As timeout(1) has it: 143 would say that somebody sent TERM. */
const TIMED_OUT = 124;

function ownCodeOf(ending: Ending): number | undefined {
  return ending.kind === 'failed' && ending.timedOut === true ? TIMED_OUT : exitCodeOf(resultOf(ending));
}

function codeOf(endings: readonly Ending[], isIncomplete: boolean): number {
  const [only] = endings;
  const own = endings.length === 1 && only !== undefined ? ownCodeOf(only) : undefined;
  if (own !== undefined && own !== 0) return own;
  if (endings.some(({ kind }) => kind === 'unknown')) return EXIT.noAnswer;
  if (endings.some(({ kind }) => kind === 'failed')) return EXIT.failed;
  return isIncomplete ? EXIT.incomplete : EXIT.ok;
}

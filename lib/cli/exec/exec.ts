/** `cnapi exec`: one command on one server or many, with its output as it comes. */
import { Command } from 'commander';
import type { NamedServer } from '../../protocol/api/servers.ts';
import { MAX_PUSH_NODES, MAX_TASK_TIMEOUT_MS } from '../../protocol/limits.ts';
import { type CommandRunner, collectValues, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import {
  buildJobCommand,
  buildJobVariables,
  buildTaskParams,
  parseVariables,
  readProgram,
} from '../invocation/remote-program.ts';
import { findTicket } from '../lookup/find.ts';
import { findTargets, readServers, type TargetOptions } from '../lookup/targets.ts';
import type { RemoteCommand, ResultListener } from '../output/outcome.ts';
import { createLabelOf, createListener, exitCodeOfRun, type ReportOptions, summarize } from '../output/reports.ts';
import { findJobTicket } from '../push-jobs/job-options.ts';
import { EXIT, UsageError } from '../terminal/command-errors.ts';
import { parseCount } from '../terminal/count.ts';
import { parseDuration } from '../terminal/duration.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { exitSoon, flushOutput } from '../terminal/output.ts';
import { exitCodeOfSignal, onEndingSignal } from '../terminal/signals.ts';
import { ESCAPE_TEXT, interactiveExec } from './interactive-exec.ts';
import { PushJobRun } from './push-job-run.ts';
import { createExec } from './stream-task.ts';
import { TaskRun } from './task-run.ts';
import { UnreadInput } from './unread-input.ts';

interface Options extends TargetOptions, ReportOptions {
  interactive?: boolean;
  tty?: boolean;
  script?: string;
  env?: string[];
  secretEnv?: string[];
  timeout?: string;
  concurrency: string;
  ticket?: string;
}

const DEFAULT_TIMEOUT_MS = 3_600_000;
const SIGNAL_MS = 200;

const MORE = `
Servers are uuids, beginnings of uuids (at least four characters), or hostnames. If one is unknown, nothing runs. Several words after \
-- are a command and its arguments, passed on unchanged. A single word is passed to sh, so pipes and redirections work. With --script \
the words are the arguments of the script. Commands run as the user of the agent. In production that is root.

On one server the command is a task (cnapi task), and all its output is shown. On several servers it is a push job (cnapi job) without \
a vote: a server that is down or busy with another push job counts as not started, and output beyond 1 MiB of a stream may be missing.

The first Ctrl-C cancels the running commands and waits until they have ended. The second Ctrl-C exits immediately. When the terminal \
is lost, or with --detach, the commands continue.

Without -i the command has no standard input. In a loop, redirect the input of this program from /dev/null. With -t the command runs in a \
terminal; cnapi exec -it web-1 -- bash is a shell. ${ESCAPE_TEXT}

Exit codes with one server: the exit code of the command, once it has one; 128 + N if signal N ended it; 124 if its --timeout expired. \
Otherwise: 0 the command ended with 0 on all servers; 1 it failed or was not started on some; 2 wrong usage, or an unknown name; 3 for \
some servers no instance could say how it ended; 4 it ended with 0 everywhere but some output is missing (also with one server); \
128 + N when signal N ended this program, 141 when the reader of its output ended.

More about output, signals, input and locks: docs/exec.md
`;

export function execCommand(runner: CommandRunner): Command {
  const command = new Command('exec')
    .description('Runs a command on servers, many concurrently, and shows its output as it comes.')
    .usage('[options] [query|server...] -- command [argument...]')
    .argument('[query|server...]', 'name=pattern as in --where; or uuids, beginnings of them, or hostnames')
    .option('--all', 'run on all servers')
    .option(
      '--where <name=pattern>',
      'run on the servers with this property, as in cnapi servers; may be repeated',
      collectValues,
    )
    .option('--group <server-group>', 'run on the servers of this server group (see cnapi group)')
    .option('--script <file>', 'run this file; - reads it from standard input')
    .option(
      '--env <name=value>',
      'set this variable for the command, on several servers at most 64 KiB in all; may be repeated',
      collectValues,
    )
    .option(
      '--secret-env <name>',
      'pass this variable of your own environment, or NAME=VALUE, to the command; nobody else can see its value. May be repeated',
      collectValues,
    )
    .option('--timeout <duration>', 'kill the command after this time; at most one day (default: 1h)')
    .option('--concurrency <count>', 'run on this many servers at the same time', '32')
    .option(
      '--ticket <ticket>',
      'a uuid, on one server: run only while this ticket is active (see cnapi lock); SCOPE/ID: wait for this lock, and hold it while the command runs',
    )
    .option('-i, --interactive', 'pass standard input on to the command; on one server')
    .option('-t, --tty', 'run the command in a terminal, as ssh -t does; on one server')
    .option('-d, --detach', 'print the id of the task, or of the push job, and do not wait')
    .option('--raw', 'write the output to the terminal unchanged, including control characters')
    .option('--no-prefix', 'do not put the name of the server before each line')
    .action(runner.action(exec, { rest: true }));
  return withExamples(withExplanation(command, MORE), [
    'cnapi exec web-1 -- uptime',
    "cnapi exec web-1 web-2 -- 'df -h / | tail -1'",
    "cnapi exec --where 'hostname=web-*' --timeout 5m -- svcadm restart nginx",
    'cnapi exec --group web --ticket rollout/web -- ./upgrade.sh',
    'cnapi exec -it web-1 -- bash',
    'cnapi exec --all --script check.sh --concurrency 100 --json',
  ]);
}

async function exec(context: Context, [names]: readonly unknown[], options: Options): Promise<number> {
  const { client, clock, output } = context;
  const concurrency = parseCount(options.concurrency, '--concurrency', MAX_PUSH_NODES);
  if (options.interactive || options.tty) return execWithStream(context, names as string[], options);
  const input = options.script === '-' ? undefined : new UnreadInput(context);
  const asked = await askedOf(context, options);
  const servers = await readServers(context, await findTargets(context, names as string[], options));
  const listener = createListener(context, servers, options);
  const run = await runOf(context, { servers, asked, concurrency, options, listener });
  await client.learnInstances().catch(() => undefined);
  input?.refuse('send what it needs with --script - or as arguments');
  if (run instanceof PushJobRun && options.detach) {
    output.onUnwritable = () => undefined;
    const id = await run.create();
    return (await hasLostOutput(output, [`push job ${id}`])) ? EXIT.incomplete : EXIT.ok;
  }
  let interruptedWith: number | undefined;
  let isLeaving = false;
  /** Nobody reads the output any more, so nothing is reported either. */
  let isUnread = false;
  const stop = onEndingSignal((signal, before) => {
    interruptedWith = exitCodeOfSignal(signal);
    if (isLeaving) return void exitSoon(clock, interruptedWith);
    if (before > 0 || signal === 'SIGHUP') {
      isLeaving = true;
      listener.onLeave();
      return void leave(context, run, { servers, code: interruptedWith });
    }
    output.complain(`cancelling ${run.openCount} of ${servers.length}; press Ctrl-C again to exit without waiting`);
    void run.cancel();
  });
  output.onUnwritable = ({ code }) => {
    if (code !== 'EPIPE' || options.detach) return;
    // If a signal ended the reader, this process receives it at the same moment; it then takes
    // precedence.
    clock.after(SIGNAL_MS, () => {
      if (interruptedWith !== undefined) return;
      interruptedWith = exitCodeOfSignal('SIGPIPE');
      isUnread = true;
      listener.onUnread();
      void run.cancel();
    });
  };
  const endings = await run.run();
  stop();
  input?.close();
  if (isUnread) return interruptedWith ?? EXIT.failed;
  if (servers.length > 1) summarize(context, servers, endings);
  const mayRetry = endings.some((ending) => ending.kind === 'failed' && ending.mayRetry === true);
  if (run instanceof PushJobRun && run.id !== undefined && mayRetry)
    output.note(`to run it again where it did not succeed: cnapi job retry ${run.id.slice(0, 8)}`);
  const started = options.detach ? endings.flatMap(({ id }) => (id === undefined ? [] : `task ${id}`)) : [];
  const isIncomplete = (await hasLostOutput(output, started)) || listener.isIncomplete();
  return interruptedWith ?? exitCodeOfRun(endings, isIncomplete);
}

/** The command reads what this program is given, or runs in a terminal. @throws UsageError */
async function execWithStream(context: Context, names: string[], options: Options): Promise<number> {
  const { program, variables, timeoutMs } = await askedOf(context, options);
  if (options.detach || context.output.json) throw new UsageError('-i and -t work with neither --detach nor --json');
  if (options.script === '-' && options.interactive)
    throw new UsageError('--script - and -i both read standard input; write the script to a file');
  const [server, ...others] = await readServers(context, await findTargets(context, names, options));
  if (server === undefined || others.length > 0) throw new UsageError('-i and -t work with one server; name one');
  if (options.ticket?.includes('/'))
    throw new UsageError('--ticket SCOPE/ID does not work with -i and -t; give the uuid of a ticket');
  const ticketUuid = options.ticket === undefined ? undefined : await findTicket(context.client, options.ticket);
  const { interactive = false, tty = false } = options;
  const request = { serverUuid: server.uuid, params: buildTaskParams(program, variables), timeoutMs, ticketUuid };
  return interactiveExec(context, {
    serverUuid: server.uuid,
    create: (stream, terminal) => createExec(context, { ...request, terminal })(stream),
    interactive,
    tty,
  });
}

/** Whether output was lost. If so, says on stderr what was started, which nobody waits for. */
async function hasLostOutput(output: Context['output'], started: readonly string[]): Promise<boolean> {
  const hasLost = await output.hasLost();
  if (hasLost) for (const one of started) output.complain(`started ${one}`);
  return hasLost;
}

interface Left {
  servers: readonly NamedServer[];
  code: number;
}

/** Running commands continue without this one; no further server is asked. */
async function leave({ output }: Context, run: RemoteCommand, { servers, code }: Left): Promise<never> {
  await run.leave();
  for (const line of run.left(createLabelOf(servers))) output.complain(`left: ${line}`);
  await flushOutput();
  process.exit(code);
}

/** @throws UsageError */
async function askedOf({ rest, env }: Context, options: Options) {
  const variables = parseVariables(options, env);
  const timeoutMs = options.timeout === undefined ? undefined : parseDuration(options.timeout, '--timeout');
  if (timeoutMs !== undefined && (timeoutMs < 1 || timeoutMs > MAX_TASK_TIMEOUT_MS))
    throw new UsageError(`--timeout ${options.timeout} is not between 1ms and 1d`);
  return { program: await readProgram(rest, options.script), variables, timeoutMs };
}

interface Asked {
  servers: readonly NamedServer[];
  asked: Awaited<ReturnType<typeof askedOf>>;
  concurrency: number;
  options: Options;
  listener: ResultListener;
}

/** A task for one server; a push job for several, or to hold a lock. @throws UsageError */
async function runOf(
  context: Context,
  { servers, asked, concurrency, options, listener }: Asked,
): Promise<RemoteCommand> {
  const { client, random, output } = context;
  const { program, variables, timeoutMs } = asked;
  const [only, ...others] = servers;
  const detach = options.detach === true;
  const isOfJob = options.ticket?.includes('/') === true;
  if (only !== undefined && others.length === 0 && !isOfJob) {
    const ticketUuid = options.ticket === undefined ? undefined : await findTicket(client, options.ticket);
    // All output can be shown, because the command waits for it.
    const params = { ...buildTaskParams(program, variables), ...(detach ? {} : { paced: true }) };
    return new TaskRun({ client, random, listener }, { server: only, params, timeoutMs, ticketUuid, detach });
  }
  if (options.ticket !== undefined && !isOfJob)
    throw new UsageError(
      `--ticket ${escapeControls(options.ticket)} is a ticket for one server; on several, --ticket SCOPE/ID waits for a lock and holds it`,
    );
  const ticket = await findJobTicket(context, { ticket: options.ticket });
  const onJob = (id: string) => {
    if (output.json) output.record({ event: 'job', job: id, servers: servers.length });
    else if (detach) output.line(id);
    else if (ticket !== undefined)
      output.note(
        `push job ${id} waits for the lock ${escapeControls(`${ticket.scope}/${ticket.id}`)}, if another holds it`,
      );
  };
  return new PushJobRun({ client, random, listener, onJob }, servers, {
    ...buildJobCommand(program),
    ...buildJobVariables(variables),
    ticket,
    quorum: 1,
    concurrency,
    node_timeout_ms: timeoutMs ?? DEFAULT_TIMEOUT_MS,
    run_timeout_ms: MAX_TASK_TIMEOUT_MS,
  });
}

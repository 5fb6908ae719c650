/** `cnapi vm exec`: a program in a VM, with the input and output of this program. */
import { Command } from 'commander';
import type { Params } from '../../client/request.ts';
import { withoutUndefined } from '../../platform/defined-fields.ts';
import { streamContracts } from '../../protocol/api/streams.ts';
import { MAX_TASK_TIMEOUT_MS } from '../../protocol/limits.ts';
import { ESCAPE_TEXT, interactiveExec } from '../exec/interactive-exec.ts';
import { UnreadInput } from '../exec/unread-input.ts';
import { type CommandRunner, collectValues, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { buildVariableParams, parseVariables } from '../invocation/remote-program.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { parseDuration } from '../terminal/duration.ts';
import { findVm, VM_TEXT } from './vm-lookup.ts';

interface Options {
  interactive?: boolean;
  tty?: boolean;
  env?: string[];
  secretEnv?: string[];
  timeout?: string;
}

const MORE = `
The words after -- are a program of the VM and its arguments. No shell reads them; for pipes and redirections write \
sh -c 'COMMAND'. The program runs beside the VM's own one, as its user, in its directory and with its environment.

With -i the program reads what this program reads, and with -t it runs in a terminal; cnapi vm exec web -it -- sh is a shell. \
Without -i it has no standard input. If this program receives input then, it reports an error before anything runs. In a loop, \
redirect its input from /dev/null. Its output is written unchanged and is not recorded. ${ESCAPE_TEXT}

The program is killed, with all that it has started, when this program ends, the connection breaks, --timeout expires, the task is \
cancelled, or the agent ends. When the program ends by itself, what it has left in its session is killed a second later, and \
what still holds its output. A daemon with neither stays.

Exit codes: that of the program; 128 + N if signal N ended it; 124 if its --timeout expired; 127 if the VM has no such program; 1 \
if it could not be run, or the connection broke; 2 wrong usage, or an unknown VM; 3 no instance answered; 128 + N when signal N ended this program, \
141 when the reader of its output ended.
`;

export function vmExecCommand(runner: CommandRunner): Command {
  const command = new Command('exec')
    .description('Runs a program in a VM.')
    .usage('[options] <vm> -- program [argument...]')
    .argument('<vm>', VM_TEXT)
    .option('-i, --interactive', 'pass standard input on to the program')
    .option('-t, --tty', 'run the program in a terminal, as ssh -t does')
    .option('--env <name=value>', 'set this variable for the program; may be repeated', collectValues)
    .option(
      '--secret-env <name>',
      'pass this variable of your own environment, or NAME=VALUE, to the program; nobody else can see its value. May be repeated',
      collectValues,
    )
    .option('--timeout <duration>', 'kill the program after this time; at most one day, which is the default')
    .action(runner.action(vmExec, { rest: true }));
  return withExamples(withExplanation(command, MORE), [
    'cnapi vm exec web -- ps',
    'cnapi vm exec web -it -- sh',
    "cnapi vm exec web -- sh -c 'df -h / | tail -1'",
    'cnapi vm exec web -i -- tar -xf - -C /srv <site.tar',
  ]);
}

async function vmExec(context: Context, [vm]: readonly unknown[], options: Options): Promise<number> {
  const { client, env, output, rest = [] } = context;
  const { interactive = false, tty = false } = options;
  if (output.json) throw new UsageError('cnapi vm exec does not work with --json');
  if (rest[0] === undefined || rest[0] === '')
    throw new UsageError('Which program should run? Write it after --, as in cnapi vm exec web -- ps');
  const input = interactive ? undefined : new UnreadInput(context);
  try {
    const variables = buildVariableParams(parseVariables(options, env));
    const timeout_ms = parseTimeout(options);
    const { server_uuid, uuid } = await findVm(client, String(vm));
    input?.refuse('give -i');
    return await interactiveExec(context, {
      serverUuid: server_uuid,
      interactive,
      tty,
      create: (stream, terminal) =>
        client.ask(streamContracts.StartVmExec, {
          server_uuid,
          vm_uuid: uuid,
          stream,
          args: [...rest],
          ...variables,
          ...withoutUndefined({ terminal, timeout_ms }),
        } as Params<typeof streamContracts.StartVmExec>),
    });
  } finally {
    input?.close();
  }
}

/** @throws UsageError */
function parseTimeout({ timeout }: Options): number | undefined {
  if (timeout === undefined) return undefined;
  const timeoutMs = parseDuration(timeout, '--timeout');
  if (timeoutMs >= 1 && timeoutMs <= MAX_TASK_TIMEOUT_MS) return timeoutMs;
  throw new UsageError(`--timeout ${timeout} is not between 1ms and 1d`);
}

/** `cnapi lock`: runs a command on this machine while it holds a lock. */
import { Command } from 'commander';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findQueueServer } from '../lookup/find.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { parseDuration, shortDuration } from '../terminal/duration.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { type EndingSignal, exitCodeOfSignal, onEndingSignal, onJobControlStop } from '../terminal/signals.ts';
import { HeldTicket, LockLostError } from './held-ticket.ts';
import { LocalCommand } from './local-command.ts';

interface Options {
  expires: string;
  wait?: string;
  killAfter: string;
  conflictExitCode: string;
}

/** The exit code for a lost lock; otherwise the command's own exit code is used. */
const LOST = 125;
const LEAST_EXPIRY_MS = 3000;
/** Time to stop the command: for the command to receive TERM, and to be gone after KILL. */
const STOPPING_MS = 1000;

const MORE = `
Takes a ticket in the queue of (server, scope, id) and waits for its turn. Then runs the command on this machine, renews the \
ticket while it runs, and releases the ticket when it has ended. For a lock of the whole datacenter, use \`default\` as the server. \
The command finds the ticket in CNAPI_TICKET; cnapi exec --ticket "$CNAPI_TICKET" is accepted only while the lock is held.

The lock is lost when somebody deletes the ticket, or when no instance could renew it in time. Then the command is stopped: with \
TERM, and with KILL after --kill-after. This begins early enough that the command has ended before anybody else can get the \
lock. Without a terminal, all processes that the command started are stopped too. When the command ends by itself, the lock is \
checked once more; the exit code is 125 if it had been lost before.

Ctrl-Z stops this program and the command. After fg the command continues once the ticket has been renewed; if that is too late, the command is ended. At \
a terminal fg wakes the command immediately, so it runs for a moment before it is held. Where no shell could wake them again (ssh \
-t), Ctrl-Z stops neither.

If this program itself is killed or gets STOP, the lock passes to the next one after --expires while the command continues: give \
the command a time limit of its own. On a suspended machine the loss is noticed when it runs again. When the machine's clock is set \
ahead by more than the time left of --expires, the program assumes a suspension, and that the lock is lost.

INT, TERM and HUP (a lost terminal) are passed to the command, and the lock is held until the command has ended, however long \
that takes. While waiting for the lock, these signals give up the place in the queue. Under nohup, HUP is passed to nobody.

Exit codes: the command's own; 128 + N if signal N ended it, but 0 for a real-time signal (34 to 64), which this program \
cannot see: run such a command as sh -c 'COMMAND; exit $?'; 124 no lock within --wait; 125 the lock was lost; 126 the command \
cannot be run; 127 there is no such command; 1 refused; 2 wrong usage, or an unknown server; 3 no instance answered, and nothing was run.
`;

export function lockCommand(runner: CommandRunner): Command {
  const command = new Command('lock')
    .description('Runs a command on this machine while it holds a lock.')
    .usage('[options] <server> <scope> <id> -- command [argument...]')
    .argument('<server>', 'uuid, the beginning of one, hostname, or `default`')
    .argument('<scope>', 'the kind of the locked thing')
    .argument('<id>', 'the id of the locked thing')
    .option('--expires <duration>', 'if this program is killed, others can get the lock after this time', '60s')
    .option('--wait <duration>', 'wait at most this long for the lock; 0 does not wait (default: forever)')
    .option(
      '--kill-after <duration>',
      'time between TERM and KILL when the lock is lost; at most a quarter of --expires',
      '5s',
    )
    .option('-E, --conflict-exit-code <code>', 'exit code if there is no lock within --wait', '124')
    .action(runner.action(lock, { rest: true }));
  return withExamples(withExplanation(command, MORE), [
    'cnapi lock web-1 vm 0f2f7f4e-5f0b-4b5e-9d8b-1c2d3e4f5a6b -- ./migrate.sh',
    'cnapi lock default release nightly --wait 0 -- make release',
    "cnapi lock db disk a -- sh -c 'cnapi exec db --ticket $CNAPI_TICKET -- sync'",
  ]);
}

async function lock(context: Context, [name, scope, id]: readonly unknown[], options: Options): Promise<number> {
  const { client, output, clock, random, rest } = context;
  const [file] = rest ?? [];
  if (rest === undefined || file === undefined || file === '')
    throw new UsageError('Which command should run while the lock is held? Write it after --');
  const { expiresMs, waitMs, killAfterMs, marginMs, conflict } = parseLockTimes(options);
  const serverUuid = await findQueueServer(client, String(name));
  await client.learnInstances().catch(() => undefined);
  const ticket = new HeldTicket(
    { client, clock, note: (text) => output.note(escapeControls(text)) },
    {
      serverUuid,
      scope: String(scope),
      id: String(id),
      action: `cnapi lock: ${file}`.slice(0, 60),
      expiresMs,
      marginMs,
      requestId: random.uuid(),
    },
  );
  const holder = new Holder(context, ticket, killAfterMs);
  try {
    const until = clock.now() + waitMs;
    if (await holder.take(until)) return await holder.run(rest);
    output.complain(`no lock within ${shortDuration(waitMs)}; nothing was run`);
    return conflict;
  } catch (error) {
    if (holder.endedBy !== undefined) return exitCodeOfSignal(holder.endedBy);
    if (!(error instanceof LockLostError)) throw error;
    output.complain(escapeControls(`the lock was lost before the command was run: ${error.message}`));
    return LOST;
  } finally {
    const isReleased = await ticket.release();
    holder.stopListening();
    if (!isReleased)
      output.complain(`no instance answered the release of the lock; it becomes free in ${shortDuration(expiresMs)}`);
  }
}

class Holder {
  readonly #context: Context;
  readonly #ticket: HeldTicket;
  readonly #killAfterMs: number;
  readonly #ending = new AbortController();
  readonly #stops: readonly (() => void)[];
  endedBy: EndingSignal | undefined;
  #command: LocalCommand | undefined;

  constructor(context: Context, ticket: HeldTicket, killAfterMs: number) {
    this.#context = context;
    this.#ticket = ticket;
    this.#killAfterMs = killAfterMs;
    this.#stops = [
      onEndingSignal((signal) => this.#onSignal(signal)),
      onJobControlStop({
        clock: context.clock,
        onStop: () => this.#command?.onStop(),
        onContinue: () => void this.#continueCommand(),
      }),
    ];
  }

  stopListening(): void {
    for (const stop of this.#stops) stop();
  }

  async take(until: number): Promise<boolean> {
    await this.#ticket.take(this.#ending.signal);
    return this.#ticket.untilActive(until, this.#ending.signal);
  }

  /** @throws LockLostError when the lock was lost before the command began */
  async run(argv: readonly string[]): Promise<number> {
    const { clock, env, output } = this.#context;
    const { lost } = this.#ticket;
    this.#ticket.confirm();
    this.#ending.signal.throwIfAborted();
    const command = new LocalCommand(argv, { clock, env: { ...env, CNAPI_TICKET: this.#ticket.uuid } });
    this.#command = command;
    const { promise: isLost, resolve } = Promise.withResolvers<'lost'>();
    lost.addEventListener('abort', () => resolve('lost'), { once: true });
    const first = await Promise.race([command.ended, isLost]);
    if (first !== 'lost') return (await this.#isHeldToTheEnd()) ? first : LOST;
    output.complain(
      escapeControls(`the lock is lost, the command is stopped: ${(lost.reason as LockLostError).message}`),
    );
    await command.stop(this.#killAfterMs);
    return LOST;
  }

  async #isHeldToTheEnd(): Promise<boolean> {
    try {
      await this.#ticket.confirmHeldUntilNow();
      return true;
    } catch (error) {
      if (!(error instanceof LockLostError)) throw error;
      this.#context.output.complain(escapeControls(`the lock was lost before the command ended: ${error.message}`));
      return false;
    }
  }

  /**
   * After a pause (Ctrl-Z) the command continues only after the lock is confirmed; if it is lost,
   * `run` ends the command.
   */
  async #continueCommand(): Promise<void> {
    const command = this.#command;
    if (command === undefined) return;
    command.pause();
    try {
      await this.#ticket.renewAndConfirm();
      command.resume();
    } catch (error) {
      if (!(error instanceof LockLostError)) throw error;
    }
  }

  /**
   * Before the command runs: gives the place in the queue back. While it runs: forwards the signal
   * to the command.
   */
  #onSignal(signal: EndingSignal): void {
    if (this.#command !== undefined) return this.#command.forward(signal);
    this.endedBy ??= signal;
    this.#ending.abort(new Error(signal));
  }
}

export function parseLockTimes({ expires, wait, killAfter, conflictExitCode }: Options) {
  const expiresMs = parseDuration(expires, '--expires');
  if (expiresMs < LEAST_EXPIRY_MS || expiresMs > 86_400_000)
    throw new UsageError(`--expires ${expires} is not between 3s and 1d; the lock is renewed while the command runs`);
  const conflict = Number(conflictExitCode);
  if (!/^\d{1,3}$/.test(conflictExitCode) || conflict > 255)
    throw new UsageError(`--conflict-exit-code ${conflictExitCode} is not a number from 0 to 255`);
  const killAfterMs = Math.min(parseDuration(killAfter, '--kill-after'), expiresMs / 4);
  return {
    expiresMs,
    conflict,
    waitMs: wait === undefined ? Number.POSITIVE_INFINITY : parseDuration(wait, '--wait'),
    killAfterMs,
    marginMs: killAfterMs + Math.min(STOPPING_MS, expiresMs / 6),
  };
}

/**
 * A simulated machine. Its sysinfo and status are plausible. Its shell understands just enough
 * (echo, sleep, exit, exec, `set -e`, `export`, and the `dummy_job` of push jobs, one after the
 * other) to give an answer that can be checked. It prints other commands. It starts no process. Ten
 * thousand must fit in one process.
 */

import { MIB } from '../../platform/byte-units.ts';
import type { Random } from '../../platform/random.ts';
import { type Clock, isoNow } from '../../platform/time/clock.ts';
import {
  allowedWorkSysinfo,
  type Command,
  type CommandResult,
  type CommandRun,
  diskInfo,
  type Machine,
  type Sysinfo,
  type TaskAddress,
  type ToldWork,
  taskAddressSysinfo,
} from '../machine/machine.ts';
import type { SettingsKeeper } from '../settings/settings-keeper.ts';
import { parseStatements } from './simulated-shell.ts';
import { type SysinfoSize, simulatedHostname, simulatedSysinfo } from './simulated-sysinfo.ts';

interface SimulatedMachineDeps {
  clock: Clock;
  random: Random;
  serverUuid: string;
  /** Number of the machine in the fleet; its name and address are derived from it. */
  number: number;
  agentVersion: string;
  sysinfoSize: SysinfoSize;
  taskAddress?: TaskAddress | undefined;
  allows?: ToldWork;
  /** Default: one of its number. */
  hostname?: string | undefined;
  /** What its agent keeps for the sysinfo. */
  settings?: SettingsKeeper | undefined;
  /** Another one for each boot; default: the uuid of the server. */
  bootId?: string | undefined;
  /** Stops the machine, and starts it again. Default: nothing happens. */
  onReboot?: (() => void) | undefined;
}

/** Commands that succeed and print nothing; parseStatements has carried out `export`. */
const SILENT: ReadonlySet<string> = new Set(['true', ':', 'exec', 'command', 'set', 'export']);
/** Exit code of a command with arguments that it does not take, and of syntax that is not known. */
const WRONG_USAGE = 2;

export class SimulatedMachine implements Machine {
  readonly bootId: string;
  readonly #deps: SimulatedMachineDeps;
  readonly #bootedAt: number;
  #hostname: string;

  constructor(deps: SimulatedMachineDeps) {
    this.#deps = deps;
    this.bootId = deps.bootId ?? deps.serverUuid;
    this.#hostname = deps.hostname ?? simulatedHostname(deps.number);
    this.#bootedAt = deps.clock.wallTime();
  }

  get hostname(): string {
    return this.#hostname;
  }

  async sysinfo(): Promise<Sysinfo> {
    const sysinfo = simulatedSysinfo({ ...this.#deps, bootedAt: this.#bootedAt });
    const { taskAddress, allows, settings } = this.#deps;
    const told = { ...taskAddressSysinfo(taskAddress), ...allowedWorkSysinfo(allows) };
    const whole = { ...sysinfo, Hostname: this.hostname, ...told };
    return settings?.complete(whole) ?? whole;
  }

  onSysinfoChange(listener: () => void): () => void {
    return this.#deps.settings?.onChange(listener) ?? (() => undefined);
  }

  async status(): Promise<Record<string, unknown>> {
    return {
      vms: {},
      meminfo: { total_bytes: 65_536 * MIB, availrmem_bytes: 32_768 * MIB, arcsize_bytes: 0 },
      diskinfo: diskInfo({ sizeBytes: 1e12, usedBytes: 1e11 }),
      timestamp: isoNow(this.#deps.clock),
    };
  }

  async reasonNotRunnable(): Promise<undefined> {}

  async execute({ script, args, env }: Command, run: CommandRun): Promise<CommandResult> {
    await run.begin();
    let stdout = '';
    let exitCode = 0;
    /** After `set -e`. */
    let endsAtFailure = false;
    for (const statement of parseStatements(script, { args, env })) {
      if ('unknown' in statement) return this.#failed(statement.unknown, stdout, run);
      const step = await this.#interpret(statement.words, exitCode, run.signal);
      if (run.signal.aborted) return { exitCode: null, signal: 'SIGTERM', stdout, stderr: '', killed: true };
      if (step.writes !== undefined) {
        run.output('stdout', Buffer.byteLength(stdout), step.writes.slice(0, 16_384));
        stdout += step.writes;
      }
      exitCode = step.exitCode;
      if (statement.words[0] === 'set') endsAtFailure = statement.words[1] === '-e';
      if (step.isLast === true || (endsAtFailure && exitCode !== 0)) break;
    }
    return { exitCode, signal: null, stdout, stderr: '', killed: false };
  }

  /** A command of which nothing is known succeeds and prints itself; a shell's syntax may not. */
  #failed(what: string, stdout: string, run: CommandRun): CommandResult {
    const stderr = `${this.hostname} is simulated and cannot run: ${what}\n`.slice(0, 16_384);
    run.output('stderr', 0, stderr);
    return { exitCode: WRONG_USAGE, signal: null, stdout, stderr, killed: false };
  }

  async #interpret(words: readonly string[], lastCode: number, signal: AbortSignal): Promise<Step> {
    const [word, ...rest] = words;
    if (word === 'exec' && rest.length > 0) return { ...(await this.#interpret(rest, lastCode, signal)), isLast: true };
    if ((word === 'command' || word === 'env') && rest.length > 0) return this.#interpret(rest, lastCode, signal);
    if (word === 'exit') return { exitCode: exitCodeOf(rest[0], lastCode), isLast: true };
    if (word === 'sleep') return { exitCode: await this.#sleep(rest[0], signal) };
    if (word === 'dummy_job') return { exitCode: await this.#dummyJob(rest, signal) };
    if (word !== undefined && SILENT.has(word)) return { exitCode: 0 };
    if (word === 'false') return { exitCode: 1 };
    const writes = word === 'echo' ? `${rest.join(' ')}\n` : `${this.hostname}$ ${words.join(' ')}\n`;
    return { exitCode: 0, writes };
  }

  async #sleep(seconds: string | undefined, signal: AbortSignal): Promise<number> {
    const ms = Number(seconds) * 1000;
    if (!(ms >= 0)) return WRONG_USAGE;
    await this.#deps.clock.sleep(ms, signal);
    return 0;
  }

  /** `dummy_job PFAIL DURATION`: after DURATION seconds it fails with the probability PFAIL. */
  async #dummyJob([probability, seconds]: readonly string[], signal: AbortSignal): Promise<number> {
    const fails = Number(probability);
    if (!(fails >= 0 && fails <= 1)) return WRONG_USAGE;
    const slept = await this.#sleep(seconds, signal);
    return slept === 0 && this.#deps.random.fraction() < fails ? 1 : slept;
  }

  async reboot(): Promise<void> {
    this.#deps.onReboot?.();
  }

  async rename(hostname: string): Promise<void> {
    this.#hostname = hostname;
  }

  async endGroup(): Promise<void> {}
}

/** What one command did. */
interface Step {
  exitCode: number;
  writes?: string;
  /** The script ends with it. */
  isLast?: boolean;
}

/**
 * The exit code of `exit TEXT` in sh: the lowest eight bits of the number, or else the last
 * command's code.
 */
function exitCodeOf(text: string | undefined, lastCode: number): number {
  if (text === undefined) return lastCode;
  return /^\d{1,9}$/.test(text) ? Number(text) & 255 : WRONG_USAGE;
}

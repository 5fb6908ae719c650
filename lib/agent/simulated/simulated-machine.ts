/**
 * A simulated machine. Its sysinfo and status are plausible. Its shell understands just enough
 * (echo, sleep, exit, and the `dummy_job` of push jobs) to give an answer that can be checked. It
 * starts no process. Ten thousand must fit in one process.
 */

import { type Clock, isoNow } from '../../platform/clock.ts';
import type { Random } from '../../platform/random.ts';
import {
  type Command,
  type CommandResult,
  type CommandRun,
  diskInfo,
  type Machine,
  type Sysinfo,
  type TaskAddress,
  taskAddressSysinfo,
} from '../machine/machine.ts';
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
}

const MIB = 1024 * 1024;
/** Exit code of a command with arguments that it does not take. */
const WRONG_USAGE = 2;

export class SimulatedMachine implements Machine {
  readonly bootId: string;
  readonly #deps: SimulatedMachineDeps;
  readonly #bootedAt: number;

  constructor(deps: SimulatedMachineDeps) {
    this.#deps = deps;
    this.bootId = deps.serverUuid;
    this.#bootedAt = deps.clock.wallTime();
  }

  get hostname(): string {
    return simulatedHostname(this.#deps.number);
  }

  async sysinfo(): Promise<Sysinfo> {
    const sysinfo = simulatedSysinfo({ ...this.#deps, bootedAt: this.#bootedAt });
    return { ...sysinfo, ...taskAddressSysinfo(this.#deps.taskAddress) };
  }

  async status(): Promise<Record<string, unknown>> {
    return {
      vms: {},
      meminfo: { total_bytes: 65_536 * MIB, availrmem_bytes: 32_768 * MIB, arcsize_bytes: 0 },
      diskinfo: diskInfo({ sizeBytes: 1e12, usedBytes: 1e11 }),
      timestamp: isoNow(this.#deps.clock),
    };
  }

  async refusalOf(): Promise<undefined> {}

  async execute({ script, args, env }: Command, run: CommandRun): Promise<CommandResult> {
    await run.begin();
    const shell = { stdout: '', exitCode: undefined as number | undefined };
    for (const line of script.split('\n').filter((text) => text.trim() !== '' && !text.startsWith('#'))) {
      const said = await this.#interpret(expand(line.trim(), args, env), run.signal);
      if (run.signal.aborted)
        return { exitCode: null, signal: 'SIGTERM', stdout: shell.stdout, stderr: '', killed: true };
      if (typeof said === 'number') {
        shell.exitCode = said;
        break;
      }
      if (said !== '') run.output('stdout', Buffer.byteLength(shell.stdout), said.slice(0, 16_384));
      shell.stdout += said;
    }
    return { exitCode: shell.exitCode ?? 0, signal: null, stdout: shell.stdout, stderr: '', killed: false };
  }

  /** Returns what a line writes, or the exit code with which the script ends there. */
  async #interpret(line: string, signal: AbortSignal): Promise<string | number> {
    const [word, ...rest] = line.split(/\s+/);
    if (word === 'exit') return Number(rest[0] ?? 0);
    if (word === 'sleep') return this.#sleep(rest[0], signal);
    if (word === 'dummy_job') return this.#dummyJob(rest, signal);
    if (word === 'true' || word === ':') return '';
    return word === 'echo' ? `${rest.join(' ')}\n` : `${this.hostname}$ ${line}\n`;
  }

  async #sleep(seconds: string | undefined, signal: AbortSignal): Promise<string | number> {
    const ms = Number(seconds) * 1000;
    if (!(ms >= 0)) return WRONG_USAGE;
    await this.#deps.clock.sleep(ms, signal);
    return '';
  }

  /** `dummy_job PFAIL DURATION`: after DURATION seconds it fails with the probability PFAIL. */
  async #dummyJob([probability, seconds]: string[], signal: AbortSignal): Promise<string | number> {
    const fails = Number(probability);
    if (!(fails >= 0 && fails <= 1)) return WRONG_USAGE;
    const slept = await this.#sleep(seconds, signal);
    return slept === '' && this.#deps.random.fraction() < fails ? 1 : slept;
  }

  async reboot(): Promise<void> {}

  async endGroup(): Promise<void> {}
}

function expand(line: string, args: string[], env: Record<string, string>): string {
  const variable = (name: string) => (/^\d$/.test(name) ? args[Number(name) - 1] : env[name]) ?? '';
  return line.replace(/\$\{?(\w+)\}?/g, (_, name: string) => variable(name));
}

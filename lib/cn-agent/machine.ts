/**
 * The seam between the agent and the machine it runs on: linux-machine.ts is a real one, the fleet has a stand-in.
 * Nothing here may block the process that holds the link.
 */
import { isIPv4 } from 'node:net';
import type { ProcessGroup } from './journal.ts';
import type { OutputStream } from './output.ts';

/** A machine under the reference's key names (docs/agent-protocol.md). */
export type Sysinfo = Record<string, unknown>;

/** Where tasks may be posted. */
export interface TaskAddress {
  host: string;
  port: number;
}

/** What a CNAPI of the older kind goes by to give tasks; an address that stands for all of the machine's own is none. */
export function taskAddressSysinfo(address: TaskAddress | undefined): Sysinfo {
  if (!address) return {};
  const isOne = isIPv4(address.host) && address.host !== '0.0.0.0';
  return { 'CN Agent Port': address.port, ...(isOne ? { 'Admin IP': address.host } : {}) };
}

export interface Command {
  script: string;
  args: string[];
  env: Record<string, string>;
}

export interface CommandRun {
  /** Names the run's file; unique among the commands that run. */
  id: string;
  signal: AbortSignal;
  /** Resolves when the journal holds the group; the command does nothing before. */
  begin(group?: ProcessGroup): Promise<void>;
  output(stream: OutputStream, offset: number, text: string): void;
}

export interface CommandResult {
  exitCode: number | null;
  signal: string | null;
  stdout: string;
  stderr: string;
  /** It did not end by itself: the signal of the run ended it. */
  killed: boolean;
}

export interface Machine {
  /** Changes with each boot. */
  readonly bootId: string;
  sysinfo(): Promise<Sysinfo>;
  /** Memory, disk and VMs as the reference's status body has them. */
  status(): Promise<Record<string, unknown>>;
  execute(command: Command, run: CommandRun): Promise<CommandResult>;
  reboot(): Promise<void>;
  /** Ends what a former agent process left running; resolves when nothing of it is left. */
  endGroup(group: ProcessGroup): Promise<void>;
}

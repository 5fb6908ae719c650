/**
 * The interface between the agent and its machine: linux-machine.ts is the real one, the fleet has
 * a simulated one. Nothing here may block the process that holds the link.
 */
import { isIPv4 } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import { ALLOWED_WORK, type AllowedWork } from '../../protocol/allowed-work.ts';
import type { OutputChannel } from '../../protocol/output-streams.ts';
import type { Terminal, TerminalSize } from '../../protocol/streams/stream.ts';
import type { ProcessGroup } from '../journal/journal.ts';

/** Properties of a machine under Triton's key names (docs/agent-protocol.md). */
export type Sysinfo = Record<string, unknown>;

/** Where tasks may be posted. */
export interface TaskAddress {
  host: string;
  port: number;
}

/** Where a legacy CNAPI is to post tasks, as sysinfo. A wildcard address is not reported. */
export function taskAddressSysinfo(address: TaskAddress | undefined): Sysinfo {
  if (!address) return {};
  const isOne = isIPv4(address.host) && address.host !== '0.0.0.0';
  return { 'CN Agent Port': address.port, ...(isOne ? { 'Admin IP': address.host } : {}) };
}

/** What the agent was started to do to its machine; undefined: its sysinfo does not say. */
export type ToldWork = readonly AllowedWork[] | undefined;

export const allowedWorkSysinfo = (allows: ToldWork): Sysinfo =>
  allows === undefined ? {} : { [ALLOWED_WORK]: allows };

/**
 * The agents of this machine, for clients of Triton's CNAPI. They decide by the version of its
 * agent what they ask for. From this version on they read sysinfo, reboot servers and set recovery
 * configurations by tasks, which this agent knows.
 */
export const TRITON_AGENTS = [
  { name: 'cn-agent', version: '2.13.0', image_uuid: '00000000-0000-0000-0000-000000000000' },
];

/**
 * Triton's twelve storage figures, for a machine without VMs: the system uses all used
 * space.
 */
export function diskInfo({ sizeBytes, usedBytes }: { sizeBytes: number; usedBytes: number }): Record<string, number> {
  return {
    cores_quota_bytes: 0,
    cores_quota_used_bytes: 0,
    installed_images_used_bytes: 0,
    kvm_quota_bytes: 0,
    kvm_quota_used_bytes: 0,
    kvm_zvol_used_bytes: 0,
    kvm_zvol_volsize_bytes: 0,
    pool_alloc_bytes: usedBytes,
    pool_size_bytes: sizeBytes,
    system_used_bytes: usedBytes,
    zone_quota_bytes: 0,
    zone_quota_used_bytes: 0,
  };
}

export interface Command {
  script: string;
  args: string[];
  env: Record<string, string>;
  /** Run as this user; otherwise as the user of the agent. */
  user?: string;
  /** Run in this directory. */
  directory?: string;
  /** The command finds a file with these contents; its path is in CHEF_PUSH_JOB_FILE. */
  file?: Buffer;
  /** The command waits while its output is sent, so the live output is complete. */
  isPaced?: boolean;
}

/**
 * Where the input of a command comes from, and its output goes. Slow readers slow the command down.
 */
interface CommandStreams {
  stdin: Readable;
  stdout: Writable;
  stderr: Writable;
}

interface StartedProgram {
  /** Command line of the runtime process (for example `runc exec`), which starts the program. */
  argv: readonly string[];
  /**
   * Resolves when the program has ended, or when the signal fires. The machine then ends the
   * runtime process, once it has read the output that the program wrote until its end.
   */
  programEnd(signal: AbortSignal): Promise<void>;
}

export interface StreamedCommand {
  /** A script, or a program that is started with its arguments as they are. */
  program: Pick<Command, 'script' | 'args'> | StartedProgram;
  env: Record<string, string>;
  streams: CommandStreams;
  /** Absent: it runs with pipes, and with a terminal otherwise, whose output is `stdout` alone. */
  terminal?: Terminal | undefined;
  /** Passes on how the size of the terminal changes. */
  onResize(receive: (size: TerminalSize) => void): void;
  /**
   * Called on an abort, before the process group ends: kills what the command has started outside
   * of it.
   */
  killFirst?(): Promise<void>;
}

export interface CommandRun {
  /** Names the run's files; unique among running commands. */
  id: string;
  signal: AbortSignal;
  /** Resolves when the journal holds the group; the command does nothing before that. */
  begin(group?: ProcessGroup): Promise<void>;
  output(stream: OutputChannel, offset: number, text: string): void;
}

export interface CommandResult {
  /** 128 + N if signal N ended the command; null if a signal ended its whole process group. */
  exitCode: number | null;
  /**
   * The signal that the exit code stands for, if it has a name, or that ended the process group.
   */
  signal: string | null;
  stdout: string;
  stderr: string;
  /** True when the run's abort signal ended the command. */
  killed: boolean;
}

/** How a command with streams ended; each field means what it means in CommandResult. */
export type StreamedResult = Pick<CommandResult, 'exitCode' | 'signal' | 'killed'>;

export interface Machine {
  /** Changes with each boot. */
  readonly bootId: string;
  /** The hostname that the sysinfo has. */
  readonly hostname: string;
  sysinfo(): Promise<Sysinfo>;
  /**
   * Calls it when the sysinfo has changed at once. Returns what ends the calls. Absent: it does
   * not.
   */
  onSysinfoChange?(listener: () => void): () => void;
  /** Memory, disk and VMs in the form of Triton's status body. */
  status(): Promise<Record<string, unknown>>;
  /**
   * Why a command with this user and directory cannot run here, as a sentence; undefined if it can.
   */
  reasonNotRunnable(command: Command): Promise<string | undefined>;
  execute(command: Command, run: CommandRun): Promise<CommandResult>;
  /** @throws TaskFailure also if there is no terminal on this machine. Absent: it cannot. */
  stream?(command: StreamedCommand, run: Omit<CommandRun, 'output'>): Promise<StreamedResult>;
  reboot(): Promise<void>;
  /**
   * Gives the machine another hostname, for its next boots, too. @throws TaskFailure if it cannot
   */
  rename(hostname: string): Promise<void>;
  /** Kills what a previous agent process left running; resolves when all of it is gone. */
  endGroup(group: ProcessGroup): Promise<void>;
}

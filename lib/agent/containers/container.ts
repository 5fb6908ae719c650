/**
 * The specification of a container, and what the agent reports about it. Everything here is data
 * that has been checked (container-spec.ts); sizes are bytes, times milliseconds.
 */
import type { ContainerState } from './lifecycle.ts';

/** How the file system of a container begins: layers of images, the lowest first. */
interface ContainerRoot {
  /** Directories with unpacked layers (layers/layer.ts). They are never written to. */
  layers: readonly string[];
  /** No process of the container can write to it. */
  isReadOnly: boolean;
}

interface ContainerLimits {
  memoryBytes: number;
  /** 100 is one core. */
  cpuPercent: number;
  processes: number;
}

/** A directory of the machine inside the container; the agent's configuration must allow it. */
interface ContainerMount {
  source: string;
  target: string;
  isReadOnly: boolean;
}

/** An interface on a bridge of the machine; without any, the container has only its loopback. */
export interface ContainerNic {
  /** Name inside the container, for example `eth0`. */
  name: string;
  bridge: string;
  /** Lower case, with colons; the agent chooses one if it is absent. */
  mac?: string | undefined;
  /** CIDR, for example `10.0.0.5/24`. */
  addresses: readonly string[];
  gateway?: string | undefined;
}

export interface ContainerProcess {
  /** The program and its arguments; the program is searched on the PATH of `env`. */
  args: readonly string[];
  env: Readonly<Record<string, string>>;
  directory: string;
  /** Numbers inside the container. */
  uid: number;
  gid: number;
  /** Whether the program runs in a terminal, whose input is open as long as the program runs. */
  hasTerminal?: true | undefined;
}

export interface ContainerSpec {
  id: string;
  hostname: string;
  root: ContainerRoot;
  process: ContainerProcess;
  limits: ContainerLimits;
  mounts: readonly ContainerMount[];
  nics: readonly ContainerNic[];
  /** Servers for names, written to /etc/resolv.conf. */
  resolvers: readonly string[];
  /** Belongs to the caller; the agent stores it and does not read it. */
  metadata: Readonly<Record<string, string>>;
  log: { maxBytes: number; maxFiles: number };
}

export interface Container {
  spec: ContainerSpec;
  state: ContainerState;
  /** When its state changed last: wall clock of the machine. */
  changedAt: number;
}

/** What a running container uses now. */
export interface ContainerUsage {
  memoryBytes: number;
  /** Processor time since its start, in microseconds. */
  cpuUs: number;
  processes: number;
}

/** A change that listeners receive; `container` is undefined after the deletion. */
export interface ContainerChange {
  id: string;
  container: Container | undefined;
}

/**
 * Puts the containers of one agent together, in DATA/containers:
 *
 *     records/         what the agent knows of each container (../records)
 *     layers/          unpacked layers of images (layers/layer.ts)
 *     all/ exits/ runtime/   as in container-paths.ts
 *
 * Several agents on one machine do not see each other's containers: what is outside of their
 * directories has a name that derives from the directory.
 */
import { createHash } from 'node:crypto';
import { mkdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../platform/log.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { type RecordFiles, recordFiles } from '../records/record-files.ts';
import type { Container, ContainerSpec } from './container.ts';
import { parseContainerSpec } from './container-spec.ts';
import { Containers } from './containers.ts';
import { DEFAULT_UID_RANGE } from './linux/linux-host.ts';
import { LinuxRuntime } from './linux/linux-runtime.ts';
import { ContainerLogs } from './logs/container-logs.ts';
import { ContainerNetworks } from './network/container-networks.ts';
import type { UidRange } from './oci/oci-config.ts';
import { LayeredRootFileSystems } from './root/layered-root-file-systems.ts';
import { LayeredSnapshots } from './root/layered-snapshots.ts';
import type { RootSnapshots } from './root/root-snapshots.ts';

/** What the agent's configuration says of containers. */
export interface ContainerOptions {
  /** Directories of the machine that containers may mount, each with all below it. */
  directories: readonly string[];
  /** Bridges of the machine that containers may be connected to. */
  bridges: readonly string[];
  /** Default: 65,536 ids from 200,000. */
  uidRange: UidRange | undefined;
}

interface OpenContainersDeps extends ContainerOptions {
  clock: Clock;
  log: Logger;
  bootId: string;
  /** Data directory of the agent. */
  data: string;
}

export interface OpenedContainers extends AsyncDisposable {
  containers: Containers;
  logs: ContainerLogs;
  /** @throws InvalidContainerSpecError */
  parse(input: unknown): Promise<ContainerSpec>;
  snapshots: RootSnapshots;
  unpack: LayeredRootFileSystems['unpack'];
  /** Where unpacked layers of images are. */
  layers: string;
  /** Directories of the machine that containers mount, also those that do not run. */
  mountedDirectories(): string[];
  /** A sentence: which programs run containers here, or why none can run. */
  summary: string;
  /** A sentence that says why no container can run here; undefined if containers can run. */
  unavailableReason: string | undefined;
}

const SCOPE_CHARS = 12;

/**
 * Finds the containers of an earlier agent and continues what it had begun. A machine that cannot
 * run containers is not a failure: `summary` says why. Closing it ends no container.
 */
export async function openContainers(deps: OpenContainersDeps): Promise<OpenedContainers> {
  const { directories, bridges, uidRange = DEFAULT_UID_RANGE } = deps;
  const directory = join(await realpath(deps.data), 'containers');
  const layers = join(directory, 'layers');
  await mkdir(layers, { recursive: true, mode: 0o700 });
  const roots = await LayeredRootFileSystems.open({ directory, ids: uidRange });
  await roots.removeUnfinished(layers);
  const networks = new ContainerNetworks({ scope: directory, bridges });
  const runtime = new LinuxRuntime({
    ...deps,
    directory,
    uidRange,
    roots,
    networks,
    cgroupParent: parentOf(directory),
  });
  await runtime.open();
  const containers = new Containers({ ...deps, runtime, records: containerRecords(join(directory, 'records')) });
  try {
    await containers.start();
  } catch (error) {
    await containers.stop();
    throw error;
  }
  const logs = new ContainerLogs({ ...deps, directory, containers });
  logs.start();
  const allowed = { directories, bridges, layerDirectories: [layers] };
  return {
    containers,
    logs,
    parse: (input) => parseContainerSpec(input, allowed),
    snapshots: new LayeredSnapshots({
      directory,
      mount: (spec) => runtime.makeRoot(spec),
      freeze: (run, work) => runtime.freeze(run, work),
    }),
    unpack: (...args) => roots.unpack(...args),
    layers,
    mountedDirectories: () => containers.list().flatMap(({ spec }) => spec.mounts.map(({ source }) => source)),
    summary: summaryOf(runtime, roots.copyReason),
    unavailableReason: unavailableReasonOf(runtime),
    [Symbol.asyncDispose]: async () => {
      logs.stop();
      await containers.stop();
    },
  };
}

/** The records of containers, by their ids. */
export const containerRecords = (directory: string): RecordFiles<Container> =>
  recordFiles<Container>(directory, ({ spec }) => spec?.id);

function parentOf(directory: string): string {
  return `/cnapi-${createHash('sha256').update(directory).digest('hex').slice(0, SCOPE_CHARS)}`;
}

function unavailableReasonOf({ unavailableReason, noLimitsReason }: LinuxRuntime): string | undefined {
  if (unavailableReason !== undefined || noLimitsReason === undefined) return unavailableReason;
  return `No container can be created on this server. ${noLimitsReason}`;
}

function summaryOf(runtime: LinuxRuntime, copyReason: string | undefined): string {
  const reason = unavailableReasonOf(runtime);
  if (reason !== undefined) return reason;
  const { programs } = runtime;
  const copied = copyReason === undefined ? '' : `; root file systems are copied (no overlay: ${copyReason})`;
  return `Containers run with ${programs}, with limits of memory, processor and processes${copied}`;
}

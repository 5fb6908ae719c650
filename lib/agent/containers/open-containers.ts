/**
 * Puts the containers of one agent together, in DATA/containers:
 *
 *     records/         what the agent knows of each container (records.ts)
 *     layers/          unpacked layers of images (root/layer.ts)
 *     all/ exits/ runtime/   as in container-paths.ts
 *
 * Several agents on one machine do not see each other's containers: what is outside of their
 * directories has a name that derives from the directory.
 */
import { createHash } from 'node:crypto';
import { mkdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../platform/clock.ts';
import type { Logger } from '../../platform/log.ts';
import type { ContainerSpec } from './container.ts';
import { parseContainerSpec } from './container-spec.ts';
import { Containers } from './containers.ts';
import { DEFAULT_UID_RANGE } from './linux-host.ts';
import { LinuxRuntime } from './linux-runtime.ts';
import { ContainerLogs } from './logs/container-logs.ts';
import { ContainerNetworks } from './network/container-networks.ts';
import type { UidRange } from './oci/oci-config.ts';
import { fileRecords } from './records.ts';
import { LayeredRootFileSystems } from './root/layered-root-file-systems.ts';
import { LayeredSnapshots } from './root/layered-snapshots.ts';
import type { RootSnapshots } from './root-snapshots.ts';

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
  /** With what containers run here, or what is lacking, as a sentence. */
  state: string;
  /** What is lacking, as a sentence; undefined if containers can run. */
  lack: string | undefined;
}

const SCOPE_CHARS = 12;

/**
 * Finds the containers of an earlier agent and continues what it had begun. A machine that cannot run
 * containers is no failure: `state` says what it lacks. Closing it ends no container.
 */
export async function openContainers(deps: OpenContainersDeps): Promise<OpenedContainers> {
  const { clock, directories, bridges, uidRange = DEFAULT_UID_RANGE } = deps;
  const directory = join(await realpath(deps.data), 'containers');
  const layers = join(directory, 'layers');
  await mkdir(layers, { recursive: true, mode: 0o700 });
  const roots = await LayeredRootFileSystems.open({ directory, ids: uidRange });
  await roots.removeUnfinished(layers);
  const networks = new ContainerNetworks({ clock, scope: directory, bridges });
  const runtime = new LinuxRuntime({
    ...deps,
    directory,
    uidRange,
    roots,
    networks,
    cgroupParent: parentOf(directory),
  });
  await runtime.open();
  const containers = new Containers({ ...deps, runtime, records: fileRecords(join(directory, 'records')) });
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
    state: stateOf(runtime, roots.copyReason),
    lack: lackOf(runtime),
    [Symbol.asyncDispose]: async () => {
      logs.stop();
      await containers.stop();
    },
  };
}

function parentOf(directory: string): string {
  return `/cnapi-${createHash('sha256').update(directory).digest('hex').slice(0, SCOPE_CHARS)}`;
}

function lackOf({ lack, limitsLack }: LinuxRuntime): string | undefined {
  if (lack !== undefined || limitsLack === undefined) return lack;
  return `No container can be created on this server. ${limitsLack}`;
}

function stateOf(runtime: LinuxRuntime, copyReason: string | undefined): string {
  const lack = lackOf(runtime);
  if (lack !== undefined) return lack;
  const { programs } = runtime;
  const copied = copyReason === undefined ? '' : `; root file systems are copied (no overlay: ${copyReason})`;
  return `Containers run with ${programs}, with limits of memory, processor and processes${copied}`;
}

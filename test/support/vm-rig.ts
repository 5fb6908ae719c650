/** VMs in memory: one machine, on which agents come and go and what runs stays. */
import type { Test } from 'tap';
import type { Container } from '../../lib/agent/containers/container.ts';
import { parseContainerSpec } from '../../lib/agent/containers/container-spec.ts';
import { Containers } from '../../lib/agent/containers/containers.ts';
import type { LogEntry } from '../../lib/agent/containers/logs/log-parser.ts';
import type { RootSnapshots } from '../../lib/agent/containers/root/root-snapshots.ts';
import { ImageNotFoundError } from '../../lib/agent/images/image-errors.ts';
import type { ImageContents, ImageDefaults, ImageStore, VmImage } from '../../lib/agent/images/image-store.ts';
import type { VmRecord } from '../../lib/agent/vms/vm-record.ts';
import { Vms } from '../../lib/agent/vms/vms.ts';
import { silentLogger } from '../../lib/platform/log.ts';
import { systemRandom as random } from '../../lib/platform/random.ts';
import { type VmCreate, vmCreate } from '../../lib/protocol/vms.ts';
import { ManualClock } from './manual-clock.ts';
import { MemoryRecords } from './memory-records.ts';
import { SimulatedContainerHost } from './simulated-containers.ts';

export const IMAGE = '11111111-1111-4111-8111-111111111111';
export const OTHER_IMAGE = '22222222-2222-4222-8222-222222222222';
/** The program of these images runs until a signal ends it. */
const image: VmImage = { layers: ['/'], defaults: { Cmd: ['serve'] } };

export const uuidOf = (number: number): string => `00000000-0000-4000-8000-${String(number).padStart(12, '0')}`;

/** A payload as a caller sends it. */
export const payload = (number: number, change: object = {}): VmCreate =>
  vmCreate.parse({ uuid: uuidOf(number), image_uuid: IMAGE, max_physical_memory: 64, ...change });

async function* noLog(): AsyncGenerator<LogEntry[]> {}

class MemoryImages implements ImageStore {
  readonly known = new Map([IMAGE, OTHER_IMAGE].map((uuid) => [uuid, image]));
  /** Images by container. */
  readonly uses = new Map<string, string[]>();

  async get(uuid: string): Promise<VmImage | undefined> {
    return this.known.get(uuid);
  }

  async add(uuid: string, defaults: ImageDefaults, contents: ImageContents): Promise<void> {
    await contents.measure(1);
    await contents.write('/nowhere');
    this.known.set(uuid, { layers: ['/'], defaults });
  }

  async use(uuid: string, containerId: string): Promise<void> {
    if (!this.known.has(uuid)) throw new ImageNotFoundError(uuid);
    this.uses.set(containerId, [...new Set([...(this.uses.get(containerId) ?? []), uuid])]);
  }

  async release(containerId: string, exceptUuid?: string): Promise<void> {
    const left = (this.uses.get(containerId) ?? []).filter((one) => one === exceptUuid);
    if (left.length > 0) this.uses.set(containerId, left);
    else this.uses.delete(containerId);
  }
}

export class VmMachine {
  readonly clock = new ManualClock();
  readonly host = new SimulatedContainerHost(this.clock);
  readonly images = new MemoryImages();
  readonly records = new MemoryRecords<VmRecord>(({ uuid }) => uuid);
  readonly containerRecords = new MemoryRecords<Container>(({ spec }) => spec.id);
  containers!: Containers;
  vms!: Vms;

  constructor(t: Test) {
    t.teardown(() => this.#end());
  }

  /** The VMs as a new agent has them; the one before is gone, whatever it was doing. */
  async agent({
    unavailableReason,
    maxVms,
    snapshots = this.host.snapshots,
  }: {
    unavailableReason?: string;
    maxVms?: number;
    snapshots?: RootSnapshots;
  } = {}): Promise<Vms> {
    await this.#end();
    const { clock, host, images, records } = this;
    const containers = new Containers({
      clock,
      log: silentLogger,
      runtime: host.runtime(),
      records: this.containerRecords,
    });
    await containers.start();
    this.containers = containers;
    const places = { directories: [], bridges: ['br0'], layerDirectories: ['/'] };
    const parse = (input: unknown) => parseContainerSpec(input, places);
    const logs = { read: noLog };
    const deps = { clock, random, log: silentLogger, containers, logs, parse, snapshots, images, records };
    this.vms = new Vms({ ...deps, unavailableReason, maxVms });
    await this.vms.start();
    await this.vms.recovered();
    return this.vms;
  }

  async #end(): Promise<void> {
    await this.vms?.stop();
    await this.containers?.stop();
  }
}

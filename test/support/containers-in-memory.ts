/** Containers in memory: one machine, on which agents come and go and what runs stays. */
import type { Test } from 'tap';
import type { Container, ContainerSpec } from '../../lib/agent/containers/container.ts';
import { Containers } from '../../lib/agent/containers/containers.ts';
import type { ContainerRuntime } from '../../lib/agent/containers/runtime.ts';
import { silentLogger } from '../../lib/platform/log.ts';
import { ManualClock } from './manual-clock.ts';
import { MemoryRecords } from './memory-records.ts';
import { SimulatedContainerHost } from './simulated-containers.ts';

export const specOf = (id: string, args: string[] = ['serve']): ContainerSpec => ({
  id,
  hostname: id,
  root: { layers: ['/layers/base'], isReadOnly: false },
  process: { args, env: {}, directory: '/', uid: 0, gid: 0 },
  limits: { memoryBytes: 64 * 1024 * 1024, cpuPercent: 50, processes: 32 },
  mounts: [],
  nics: [],
  resolvers: [],
  metadata: { owner: 'test' },
  log: { maxBytes: 1024 * 1024, maxFiles: 3 },
});

export class MachineInMemory {
  readonly clock = new ManualClock();
  readonly host = new SimulatedContainerHost(this.clock);
  readonly records = new MemoryRecords<Container>(({ spec }) => spec.id);
  #agent: Containers | undefined;

  constructor(t: Test) {
    t.teardown(() => this.#agent?.stop());
  }

  /** The containers as a new agent has them; the one before is gone. */
  async agent(change: (runtime: ContainerRuntime) => Partial<ContainerRuntime> = () => ({})): Promise<Containers> {
    await this.#agent?.stop();
    const runtime = this.host.runtime();
    const { clock, records } = this;
    const changed = Object.assign(runtime, change(runtime));
    const containers = new Containers({ clock, log: silentLogger, runtime: changed, records, maxContainers: 3 });
    this.#agent = containers;
    await containers.start();
    return containers;
  }

  settle(): Promise<void> {
    return this.clock.advance(0);
  }
}

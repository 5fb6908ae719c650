/**
 * A server whose agent has no link: it registers, and posts a heartbeat every 5 s to any instance.
 */
import { simulatedSysinfo } from '../../lib/agent/simulated/simulated-sysinfo.ts';
import { SimClient } from './sim-client.ts';
import { EPOCH_MS } from './sim-process.ts';
import type { World } from './world.ts';

const HEARTBEAT_MS = 5_000;
const PATIENCE_MS = 4_000;

export class SimLegacyAgent {
  readonly uuid: string;
  readonly name: string;
  readonly #number: number;
  readonly #client: SimClient;
  readonly #world: World;
  /** When an instance last received one of its heartbeats. */
  heardAt: number | undefined;
  #isSilent = false;

  constructor(world: World, number: number) {
    this.name = `old-${number}`;
    this.#number = 1_000 + number;
    this.#world = world;
    this.#client = new SimClient(world, this.name);
    this.uuid = world.random.fork(this.name).uuid();
  }

  get isSilent(): boolean {
    return this.#isSilent;
  }

  silence(isSilent: boolean): void {
    this.#isSilent = isSilent;
  }

  async start(): Promise<void> {
    const { uuid } = this;
    const numbered = { serverUuid: uuid, number: this.#number, bootedAt: EPOCH_MS };
    const sysinfo = simulatedSysinfo({ ...numbered, agentVersion: 'old', sysinfoSize: 'small' });
    await this.#client.insist({ route: 'RegisterSysinfo', params: { server_uuid: uuid, sysinfo } });
    for (;;) {
      if (!this.#isSilent) await this.#beat();
      await this.#client.sleep(HEARTBEAT_MS);
    }
  }

  async #beat(): Promise<void> {
    const sentAt = this.#world.time.now;
    const request = { route: 'PostHeartbeat', params: { server_uuid: this.uuid }, patienceMs: PATIENCE_MS };
    const answer = await this.#client.ask(request);
    if (answer.status === 204) this.heardAt = sentAt;
  }
}

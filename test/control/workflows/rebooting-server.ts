/**
 * A server with a real agent on a simulated machine. `server_reboot` is recorded; the machine then
 * stops, and returns with another boot time when the test says so.
 */
import type { Test } from 'tap';
import { Agent, type AgentDeps } from '../../../lib/agent/agent.ts';
import { catalogueOf } from '../../../lib/agent/catalogue.ts';
import { MemoryJournal } from '../../../lib/agent/journal/journal-memory.ts';
import { dialWebSocket } from '../../../lib/agent/link/link-socket.ts';
import { Ticker } from '../../../lib/agent/link/ticker.ts';
import { SimulatedMachine } from '../../../lib/agent/simulated/simulated-machine.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import type { TestApp } from '../../support/apps.ts';
import { until } from '../../support/until.ts';

const BOOT_MS = 60_000;

export class RebootingServer {
  readonly serverUuid: string;
  /** How often its agent has rebooted it. */
  reboots = 0;
  /** Before it answers the end of `server_reboot`, the machine is gone. */
  diesAtReboot = false;
  readonly #apps: readonly TestApp[];
  readonly #further: Partial<AgentDeps>;
  readonly #journal = new MemoryJournal({ clock, random });
  #agent: Agent | undefined;

  private constructor(apps: readonly TestApp[], further: Partial<AgentDeps>) {
    this.serverUuid = further.serverUuid ?? random.uuid();
    this.#apps = apps;
    this.#further = further;
  }

  /** Resolves when the instances show it as running. */
  static async start(
    t: Pick<Test, 'teardown'>,
    apps: readonly TestApp[],
    further: Partial<AgentDeps> = {},
  ): Promise<RebootingServer> {
    const server = new RebootingServer(apps, further);
    t.teardown(() => server.#agent?.stop());
    await server.boot();
    await server.shown(({ status }) => status === 'running');
    return server;
  }

  async boot(): Promise<void> {
    const { serverUuid, reboots } = this;
    const bootClock = { ...clock, wallTime: () => clock.wallTime() + reboots * BOOT_MS };
    const machine = new SimulatedMachine({
      ...{ clock: bootClock, random, serverUuid, number: 1, agentVersion: '1.0.0', sysinfoSize: 'small' },
    });
    machine.reboot = async () => {
      this.reboots += 1;
      if (this.diesAtReboot) this.#agent?.abandon();
    };
    this.#agent = new Agent({
      ...{ clock, random, log: silentLogger, ticker: new Ticker({ clock, periodMs: 50 }), dial: dialWebSocket(clock) },
      resolve: async () => this.#apps.map(({ url, cnapiUuid: uuid }) => ({ ...addressOf(url), uuid })),
      ...{ journal: this.#journal, services: { machine }, tasks: catalogueOf({}), serverUuid, agentVersion: '1.0.0' },
      ...{ allowReboot: true, protocol: 'auto', ...this.#further },
    });
    await this.#agent.start();
  }

  /** The machine stops. */
  powerOff(): void {
    this.#agent?.abandon();
  }

  /** Waits until the server is shown like this. */
  shown(isSo: (server: Record<string, unknown>) => boolean): Promise<Record<string, unknown>> {
    return until(async () => {
      const { status, body } =
        (await this.#apps.at(-1)?.get<Record<string, unknown>>(`/servers/${this.serverUuid}`)) ?? {};
      return status === 200 && body !== undefined && isSo(body) ? body : undefined;
    }, `server ${this.serverUuid} to be shown as expected`);
  }
}

function addressOf(url: string): { host: string; port: number } {
  const { hostname: host, port } = new URL(url);
  return { host, port: Number(port) };
}

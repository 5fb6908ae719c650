/**
 * One server of the simulated world: its machine and disk, and the agent process that runs on it,
 * if any.
 */
import { Agent } from '../../lib/agent/agent.ts';
import { catalogueOf } from '../../lib/agent/catalogue.ts';
import type { Endpoint } from '../../lib/agent/link/endpoints.ts';
import { Ticker } from '../../lib/agent/link/ticker.ts';
import type { SeededRandom } from './seeded-random.ts';
import { type Disk, SimJournal } from './sim-journal.ts';
import { AgentEnd, type LinkIngress } from './sim-link.ts';
import { SimMachine, SimServer } from './sim-machine.ts';
import type { SimProcess } from './sim-process.ts';
import { SimVms, type VmDisk } from './sim-vms.ts';
import { PHASE } from './virtual-time.ts';
import type { World } from './world.ts';

export class SimAgent {
  readonly name: string;
  readonly server: SimServer;
  readonly random: SeededRandom;
  readonly #world: World;
  readonly #disk: Disk;
  readonly vms: VmDisk = new Map();
  /** All that it ever had. */
  readonly hadVms = new Set<string>();
  #process: SimProcess | undefined;
  #agent: Agent | undefined;
  #incarnations = 0;
  #wallOffsetMs = 0;
  /** The machine restarts. */
  #isOff = false;
  /** The state at some time, for a disk that is rolled back to it. */
  #backup: Disk | undefined;

  constructor(world: World, number: number) {
    const random = world.random.fork(`server ${number}`);
    this.#world = world;
    this.random = random;
    this.name = `agent-${number}`;
    this.server = new SimServer({
      uuid: random.uuid(),
      number,
      time: world.time,
      began: (execution) => world.checks.push.began(execution),
      reboot: () => this.#reboot(),
    });
    this.#disk = { journalId: random.uuid(), records: [] };
  }

  get uuid(): string {
    return this.server.uuid;
  }

  get process(): SimProcess | undefined {
    return this.#process;
  }

  get agent(): Agent | undefined {
    return this.#agent;
  }

  /** True while an agent process exists and is not stopped. */
  get isUp(): boolean {
    return this.#process?.isRunning === true;
  }

  start(): void {
    if (this.#isOff || (this.#process !== undefined && !this.#process.isDead)) return;
    const { network, story, hasReboots } = this.#world;
    if (hasReboots) this.server.switchOn();
    this.#incarnations += 1;
    const process = this.#world.newProcess(this.name, `${this.name}/${this.#incarnations}`);
    const { clock, random } = process;
    process.wallOffsetMs = this.#wallOffsetMs;
    this.#process = process;
    // Worlds without VMs stay as they were before there were any.
    const vms = this.#world.hasVms ? new SimVms(this, process).asVms : undefined;
    const services = { machine: new SimMachine(this.server, process), vms };
    this.#agent = new Agent({
      clock,
      random,
      log: story.logger(this.name),
      ticker: new Ticker({ clock }),
      journal: new SimJournal({ process, time: this.#world.time, disk: this.#disk }),
      dial: ({ endpoint, serverUuid }, events) => {
        const sent = (text: string) => this.#world.checks.push.sent(this.uuid, text);
        const end = new AgentEnd({ process, network, events, sent });
        events.begun();
        end.connect(this.#addressed(endpoint), serverUuid);
        return end;
      },
      resolve: async () => this.#world.addresses(),
      tasks: catalogueOf(services),
      services,
      serverUuid: this.uuid,
      agentVersion: 'simulated',
      // One agent of three refuses to reboot its machine.
      allowReboot: hasReboots && this.server.number % 3 !== 2,
      protocol: 'link',
    });
    void this.#agent.start();
  }

  /**
   * The process is killed, and the commands it started continue. Without power they stop too, and
   * nobody is notified.
   */
  kill({ isPowerless }: { isPowerless: boolean }): void {
    this.#process?.kill({ isPowerless });
    if (isPowerless) this.server.losePower();
  }

  /** The machine stops soon, as its agent has asked, and is back some seconds later. */
  #reboot(): void {
    const { time, checks } = this.#world;
    checks.workflows.rebooted(this.uuid);
    time.schedule(this.random.between(0, 400), PHASE.input, () => {
      if (this.#isOff) return;
      const downMs = this.random.between(1_500, 7_000);
      this.#world.disturbed('agents', downMs, this.name);
      this.#isOff = true;
      this.kill({ isPowerless: true });
      time.schedule(downMs, PHASE.input, () => {
        this.#isOff = false;
        this.start();
      });
    });
  }

  /** An orderly stop, as at SIGTERM. */
  stop(): void {
    const process = this.#process;
    process?.receive(0, () => void this.#agent?.stop().then(() => process.kill()));
  }

  /** Changes the clock of its machine; the error remains when the agent starts again. */
  stepClock(ms: number): void {
    this.#wallOffsetMs += ms;
    if (this.#process !== undefined) this.#process.wallOffsetMs = this.#wallOffsetMs;
  }

  loseJournal(): void {
    this.server.forgot();
    this.#disk.journalId = this.#world.random.uuid();
    this.#disk.records = [];
  }

  copyOfJournal(): Disk {
    return { journalId: this.#disk.journalId, records: [...this.#disk.records] };
  }

  restoreJournal({ journalId, records }: Disk): void {
    this.server.forgot(records.flatMap((record) => (record.record === 'accepted' ? [record.task] : [])));
    this.#disk.journalId = journalId;
    this.#disk.records = [...records];
  }

  backUpJournal(): void {
    this.#backup = this.copyOfJournal();
  }

  rollBackJournal(): void {
    if (this.#backup !== undefined) this.restoreJournal(this.#backup);
  }

  #addressed({ host }: Endpoint): { name: string; find: () => LinkIngress | undefined } {
    return { name: this.#world.nameOf(host), find: () => this.#world.ingressAt(host) };
  }
}

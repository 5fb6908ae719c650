/**
 * One simulated world, from its seed to its result: assembles everything and runs until all is well
 * or something is violated.
 */
import type { Endpoint } from '../../lib/agent/link/endpoints.ts';
import type { Change } from './changes.ts';
import { Checks, type Invariant } from './checks.ts';
import { Conditions } from './conditions.ts';
import { type Concern, type Disturbance, Disturbances } from './disturbances.ts';
import { eventComplaints } from './event-checks.ts';
import { scheduleFaults } from './faults.ts';
import type { Costs, Plan } from './plan.ts';
import { SeededRandom } from './seeded-random.ts';
import { SimAgent } from './sim-agent.ts';
import { SimHub } from './sim-bus.ts';
import { SimInstance } from './sim-instance.ts';
import { SimLegacyAgent } from './sim-legacy-agent.ts';
import type { LinkIngress } from './sim-link.ts';
import { SimNetwork } from './sim-network.ts';
import type { SimPostgres } from './sim-postgres.ts';
import { SimProcess } from './sim-process.ts';
import { Story } from './story.ts';
import { PHASE, VirtualTime } from './virtual-time.ts';
import { Workload } from './workload.ts';

export interface Violation {
  invariant: Invariant;
  what: string;
  at: number;
}

export interface Counts {
  tasks: number;
  cancels: number;
  executions: number;
  tickets: number;
  holds: number;
  renewals: number;
  duties: number;
  /** Duties that were claimed from a dead run. */
  takeovers: number;
  /** VMs that were created, and tasks that changed VMs. */
  vmsCreated: number;
  vmChanges: number;
  /** Push jobs that have ended, their commands that were started, and their aborts. */
  pushJobs: number;
  pushRuns: number;
  aborts: number;
  /**
   * Changes of push jobs that were accepted, and jobs that began to vote once they had their
   * tickets.
   */
  pushChanges: number;
  pushTickets: number;
  /**
   * Workflow jobs that have ended, reboots, jobs that succeeded, and agents that were told to
   * resume after others.
   */
  workflowJobs: number;
  reboots: number;
  rebooted: number;
  resumes: number;
  /** Runs of noderoles that have ended, and noderoles that are active in the end. */
  noderoleRuns: number;
  activeNoderoles: number;
  /** Runs that were repeated because data was committed meanwhile. */
  staleRuns: number;
  drains: number;
  /** Agents that an instance sent to another one for balancing. */
  shed: number;
  changes: number;
}

export interface Outcome {
  violations: Violation[];
  /** A digest of everything that happened, in order. */
  digest: string;
  story: string[];
  virtualMs: number;
  events: number;
  /** How much happened, so that a run that did nothing cannot pass for a good one. */
  counts: Counts;
}

/**
 * After the last fault all must be well within this time: I1's longest bound, and tasks' own
 * deadlines in addition.
 */
const WELL_WITHIN_MS = 75_000;
/** The time for which all must stay well. */
const STAYS_WELL_MS = 6_000;
const STORY_LINES = 150;

export class World {
  readonly time = new VirtualTime();
  readonly random: SeededRandom;
  readonly story: Story;
  readonly network: SimNetwork;
  readonly hub: SimHub;
  readonly postgres: SimPostgres;
  readonly checks: Checks;
  readonly workload: Workload;
  readonly conditions: Conditions;
  readonly instances: SimInstance[] = [];
  readonly agents: SimAgent[] = [];
  readonly legacyAgents: SimLegacyAgent[] = [];
  readonly #plan: Plan;
  readonly #violations: Violation[] = [];
  readonly #disturbances = new Disturbances();
  #changes = 0;
  #recoveredSince: number | undefined;

  constructor(plan: Plan, postgres: SimPostgres, trace?: (line: string) => void) {
    const { time } = this;
    this.#plan = plan;
    this.postgres = postgres;
    this.random = new SeededRandom(`world ${plan.seed}`);
    this.story = new Story({ time, trace, unexpected: (who, error) => this.#unexpected(who, error) });
    this.network = new SimNetwork({ time, random: this.random.fork('network'), story: this.story });
    this.hub = new SimHub({ random: this.random.fork('bus'), story: this.story });
    this.checks = new Checks(this);
    this.workload = new Workload(this);
    this.conditions = new Conditions(this);
  }

  async run(): Promise<Outcome> {
    const { time, story, postgres } = this;
    const plan = this.#plan;
    const changed = (change: Change, who: string) => this.#noteChange(change, who);
    await postgres.begin({
      time,
      random: this.random.fork('database'),
      story,
      changed,
      committed: () => this.checks.committed(),
      heldUp: (held) => this.checks.heldUp(held),
    });
    for (let number = 0; number < plan.instances; number++) this.addInstance();
    for (let number = 0; number < plan.agents; number++) this.#addAgent(number);
    for (let number = 0; number < plan.legacyAgents; number++) this.#addLegacyAgent(number);
    scheduleFaults(this, plan.faults);
    this.workload.schedule(plan.operations);
    this.#tick();
    await time.runUntil(plan.calmAt + WELL_WITHIN_MS, () => this.#isOver());
    await this.#judge(postgres);
    return this.#outcome();
  }

  violated(invariant: Invariant, what: string): void {
    this.story.tell('VIOLATED', `${invariant}: ${what}`);
    this.#violations.push({ invariant, what, at: this.time.now });
  }

  /** An exception that no code expected: it would end a real process. */
  crashed(who: string, error: unknown): void {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    this.violated('I7', `${who} had an unexpected error: ${text.split('\n').slice(0, 4).join(' | ')}`);
  }

  /** The product's own alarm of I4 is a violation here. */
  #unexpected(who: string, error: unknown): void {
    if (error === 'waitlist: queues had no active ticket') this.violated('I4', `${who}: ${error}`);
    else this.crashed(who, error);
  }

  addInstance(): void {
    const instance = new SimInstance(this, this.instances.length);
    this.instances.push(instance);
    this.time.schedule(this.random.between(0, 400), PHASE.input, () => instance.start());
  }

  get costs(): Costs {
    return this.#plan.costs;
  }

  get connectedWithinMs(): number {
    return this.#plan.connectedWithinMs;
  }

  get hasDuties(): boolean {
    return this.#plan.operations.some(({ kind }) => kind === 'duty');
  }

  get hasVms(): boolean {
    return this.#plan.operations.some(({ kind }) => kind === 'vm');
  }

  get hasReboots(): boolean {
    return this.#plan.operations.some(({ kind }) => kind === 'reboot');
  }

  get hasArrivals(): boolean {
    return this.#plan.faults.some(({ kind }) => kind === 'agents-arriving');
  }

  /** Adds agents to the existing ones, spread over `withinMs`. */
  addAgents(count: number, withinMs: number): void {
    for (let each = 0; each < count; each++) this.#addAgent(this.agents.length, () => this.random.between(0, withinMs));
  }

  newProcess(name: string, life: string): SimProcess {
    this.story.tell(name, `process ${life} starts`);
    const crashed = (error: unknown) => this.crashed(name, error);
    return new SimProcess({ name, time: this.time, random: this.random.fork(life), crashed });
  }

  /** The addresses that the name server has: those of all instances that were ever configured. */
  addresses(): Endpoint[] {
    return this.instances.map(({ host }) => ({ host, port: 8080 }));
  }

  nameOf(host: string): string {
    return this.instances.find((instance) => instance.host === host)?.name ?? host;
  }

  ingressAt(host: string): LinkIngress | undefined {
    return this.instances.find((instance) => instance.host === host && instance.isOpen);
  }

  nameOfServer(serverUuid: string): string {
    const all = [...this.agents, ...this.legacyAgents];
    return all.find(({ uuid }) => uuid === serverUuid)?.name ?? serverUuid;
  }

  disturbed(kind: Disturbance, ms: number, whom?: string): void {
    this.#disturbances.note(kind, this.time.now + ms, whom);
  }

  /** How long ago the last of these ended; 0 while one lasts. */
  calmForMs(...concerns: Concern[]): number {
    return Math.max(0, this.time.now - this.#disturbances.until(...concerns));
  }

  #addAgent(number: number, inMs = () => this.random.between(500, 2500)): void {
    const agent = new SimAgent(this, number);
    this.agents.push(agent);
    this.time.schedule(inMs(), PHASE.input, () => agent.start());
    this.#backUp(agent);
  }

  #backUp(agent: SimAgent): void {
    this.time.schedule(agent.random.between(1_000, 5_000), PHASE.input, () => {
      agent.backUpJournal();
      this.#backUp(agent);
    });
  }

  #addLegacyAgent(number: number): void {
    const agent = new SimLegacyAgent(this, number);
    this.legacyAgents.push(agent);
    this.time.schedule(this.random.between(1_000, 6_000), PHASE.input, () => void agent.start());
  }

  #tick(): void {
    this.time.schedule(1000, PHASE.input, () => {
      this.checks.tick();
      this.#watchWellness();
      this.#tick();
    });
  }

  /** Each kind of fault has its own time to recover. */
  #watchWellness(): void {
    const calmForMs = this.time.now - this.#plan.calmAt;
    const unrecovered = calmForMs < 0 ? undefined : this.checks.unrecovered();
    if (unrecovered?.length === 0) this.#recoveredSince ??= this.time.now;
    else this.#recoveredSince = undefined;
    for (const { invariant, what, withinMs } of unrecovered ?? [])
      if (calmForMs > withinMs) this.violated(invariant, what);
  }

  #isOver(): boolean {
    const isWell = this.#recoveredSince !== undefined && this.time.now - this.#recoveredSince > STAYS_WELL_MS;
    return this.#violations.length > 0 || isWell;
  }

  async #judge(postgres: SimPostgres): Promise<void> {
    if (this.#violations.length > 0) return;
    for (const { invariant, what } of this.checks.unrecovered()) this.violated(invariant, what);
    for (const complaint of this.checks.leaks()) this.violated('I7', complaint);
    this.checks.atTheEnd();
    for (const complaint of await eventComplaints(postgres)) this.violated('I6', complaint);
    for (const complaint of await this.checks.vms.complaints(postgres)) this.violated('I6', complaint);
  }

  #noteChange(change: Change, who: string): void {
    this.#changes += 1;
    this.checks.changed(change, who);
  }

  #outcome(): Outcome {
    const executions = this.agents.reduce((sum, { server }) => sum + server.executions.length, 0);
    return {
      violations: this.#violations,
      digest: this.story.digest(),
      story: this.story.last(STORY_LINES),
      virtualMs: this.time.now,
      events: this.time.events,
      counts: {
        ...this.workload.counts,
        executions,
        takeovers: this.checks.duties.takeovers,
        vmsCreated: this.checks.vms.created,
        vmChanges: this.checks.vms.changed,
        pushJobs: this.checks.push.ended,
        pushRuns: this.checks.push.executions,
        pushTickets: this.checks.push.ticketed,
        ...this.checks.workflows.counts,
        ...this.checks.annealer.counts,
        drains: this.#plan.faults.filter(({ kind }) => kind === 'instance-drained').length,
        shed: this.instances.reduce((sum, { core }) => sum + (core?.roster.balancer.shed ?? 0), 0),
        changes: this.#changes,
      },
    };
  }
}

/**
 * The invariants (docs/design.md), checked at every change as it commits, each second of
 * virtual time, and at the end. The checks know the whole world: what the database says, what each
 * process holds, and what really happened on the servers.
 */
import { ANNEALER_DUTY_ID } from '../../lib/control/annealer/noderole-store.ts';
import { AnnealerChecks } from './annealer-checks.ts';
import { ArrivalChecks } from './arrival-checks.ts';
import type { Change } from './changes.ts';
import { DutyChecks } from './duty-checks.ts';
import { PushChecks } from './push-checks.ts';
import { RosterChecks } from './roster-checks.ts';
import type { HeldUp } from './sim-postgres.ts';
import { TaskChecks } from './task-checks.ts';
import { TicketChecks } from './ticket-checks.ts';
import { VmChecks } from './vm-checks.ts';
import { WorkflowChecks } from './workflow-checks.ts';
import type { World } from './world.ts';

export const INVARIANTS = ['I1', 'I2', 'I3', 'I4', 'I5', 'I6', 'I7', 'I8', 'I9', 'I10', 'I11'] as const;
export type Invariant = (typeof INVARIANTS)[number];

export interface Unrecovered {
  invariant: Invariant;
  withinMs: number;
  what: string;
}

/**
 * Time for tasks to end. It includes their own deadlines, which are shortened in the simulation.
 */
const WORK_DONE_MS = 74_000;

/** A wait as its caller saw it. */
export interface SeenWait {
  what: string;
  since: number;
  timeoutMs: number;
  /** Whether the answer says that it has not happened; `lost` when no answer came. */
  answer: 'event' | 'timeout' | 'lost';
  /** When the awaited event happened. */
  causeAt: number | undefined;
}

/** Longer than a wide answer takes when its client reads. */
const HELD_UP_MS = 300;
/** The trips, and a turn of the reader for all waits. */
const WAIT_SLACK_MS = 1_500;

export class Checks {
  readonly roster: RosterChecks;
  readonly tasks: TaskChecks;
  readonly tickets: TicketChecks;
  readonly duties: DutyChecks;
  readonly push: PushChecks;
  readonly vms: VmChecks;
  readonly workflows: WorkflowChecks;
  readonly annealer: AnnealerChecks;
  readonly #arrivals: ArrivalChecks | undefined;
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
    if (world.hasArrivals) this.#arrivals = new ArrivalChecks(world);
    this.roster = new RosterChecks(world);
    this.tasks = new TaskChecks(world);
    this.tickets = new TicketChecks(world);
    this.duties = new DutyChecks(world);
    this.push = new PushChecks(world);
    this.vms = new VmChecks(world);
    this.workflows = new WorkflowChecks(world);
    this.annealer = new AnnealerChecks(world);
  }

  /** One row that `who` changed; `committed` follows after all rows of the statement. */
  changed(change: Change, who: string): void {
    switch (change.table) {
      case 'cnapi_instances':
        this.duties.instanceChanged(change.before, change.after);
        return this.roster.instanceChanged(change.before, change.after);
      case 'cnapi_roster_authority':
        return this.roster.rowChanged(change);
      case 'cnapi_tasks':
        return this.tasks.rowChanged(change.before, change.after);
      case 'cnapi_server_reports':
        return this.vms.reportChanged(change.after);
      case 'cnapi_waitlist_tickets':
        return this.tickets.rowChanged(change.before, change.after);
      case 'cnapi_duties':
        return this.duties.rowChanged(change.before, change.after);
      case 'cnapi_sim_duty_steps':
        return void (change.after && this.duties.stepWritten(change.after));
      case 'cnapi_push_jobs':
        return this.push.jobChanged(change.before, change.after, who);
      case 'cnapi_push_nodes':
        return this.push.nodeChanged(change.before, change.after, who);
      case 'cnapi_push_busy':
        return this.push.busyChanged(change.before, change.after);
      case 'cnapi_workflow_jobs':
        return this.workflows.jobChanged(change.before, change.after, who);
      case 'cnapi_noderoles':
        return this.annealer.noderoleChanged(change.before, change.after);
      case 'cnapi_noderole_edges':
        return this.annealer.edgeChanged(change.before, change.after);
      case 'cnapi_noderole_runs':
        return this.annealer.runChanged(change.before, change.after, who);
      default:
        return change satisfies never;
    }
  }

  committed(): void {
    this.tickets.committed();
    this.push.committed();
    this.workflows.committed();
    this.annealer.committed();
  }

  /** Law 5: an unread answer of one process delays no other. A slow network is slow for all. */
  heldUp({ who, label, by, ms }: HeldUp): void {
    const { postgres } = this.#world;
    if (who !== by && ms > HELD_UP_MS + 3 * postgres.trouble.slowMs)
      this.#world.violated(
        'I6',
        `${who} waited ${Math.round(ms)} ms for rows that are locked by an answer that ${by} has not read: ${label}`,
      );
  }

  /** Called each second. */
  tick(): void {
    this.roster.tick();
    this.duties.tick();
    this.push.tick();
    this.#arrivals?.tick();
  }

  /** I5: a wait ends with the event or at its timeout, and without the bus within the slow poll. */
  waited({ what, since, timeoutMs, answer, causeAt }: SeenWait): void {
    const world = this.#world;
    const tookMs = world.time.now - since;
    const slowPollMs = world.instances[0]?.config.slowPollMs ?? 0;
    if (world.calmForMs('instances', 'arrivals', 'drains', 'network', 'database') < tookMs + slowPollMs) return;
    const lateMs = causeAt === undefined ? 0 : world.time.now - Math.max(since, causeAt);
    if (lateMs > slowPollMs + WAIT_SLACK_MS)
      world.violated('I5', `a wait for ${what} continued for ${Math.round(lateMs)} ms after its event`);
    if (tookMs > timeoutMs + WAIT_SLACK_MS)
      world.violated('I5', `a wait for ${what} of ${timeoutMs} ms had no answer in ${Math.round(tookMs)} ms`);
    if (answer === 'timeout' && tookMs < timeoutMs)
      world.violated('I5', `a wait for ${what} of ${timeoutMs} ms ended after ${Math.round(tookMs)} ms`);
  }

  /**
   * What has not recovered yet, and how long after the last fault it may take; empty when the world
   * has recovered.
   */
  unrecovered(): Unrecovered[] {
    const { agents, legacyAgents, workload, connectedWithinMs } = this.#world;
    const isRunning = ({ uuid }: { uuid: string }) => this.roster.statusOf(uuid) === 'running';
    return [
      ...legacyAgents
        .filter((agent) => !isRunning(agent))
        .map(({ name }) => unrecovered('I1', connectedWithinMs, `${name} posts heartbeats but is not running`)),
      ...agents
        .filter((agent) => !isRunning(agent) || agent.agent?.link.isLive !== true)
        .map(({ name, uuid }) =>
          unrecovered('I1', connectedWithinMs, `${name} is up, but has no session or is ${this.roster.statusOf(uuid)}`),
        ),
      ...workload.unfinished.map(({ number, kind }) =>
        unrecovered('I5', WORK_DONE_MS, `operation ${number} (${kind}) has no end`),
      ),
      ...this.tasks.unended.map(({ id, state }) => unrecovered('I6', WORK_DONE_MS, `task ${id} is still ${state}`)),
      ...this.vms.unlike.map((what) => unrecovered('I6', WORK_DONE_MS, what)),
      ...this.duties.unended.map(({ id, state }) => unrecovered('I8', WORK_DONE_MS, `duty ${id} is still ${state}`)),
      ...this.push.unended.map(({ id, state }) => unrecovered('I9', WORK_DONE_MS, `push job ${id} is still ${state}`)),
      ...this.push.withTicket.map(({ id, ticket }) =>
        unrecovered('I9', WORK_DONE_MS, `push job ${id} has ended and still has its ticket ${ticket}`),
      ),
      ...this.push.engaged.map(({ server_uuid, job, rehab_since }) =>
        unrecovered(
          'I9',
          WORK_DONE_MS,
          `${this.#world.nameOfServer(server_uuid)} is still ${rehab_since === null ? 'in' : 'in rehab for'} push job ${job}`,
        ),
      ),
      ...this.workflows.unended.map(({ id, execution }) =>
        unrecovered('I10', WORK_DONE_MS, `workflow job ${id} is still ${execution}`),
      ),
      ...this.workflows.paused.map((name) =>
        unrecovered('I10', WORK_DONE_MS, `${name} is still paused, and no job needs it`),
      ),
      ...this.annealer.unsettled.map(({ role, server_uuid, state }) =>
        unrecovered('I11', WORK_DONE_MS, `${role} of ${this.#world.nameOfServer(server_uuid)} is still ${state}`),
      ),
      ...[...workload.accepted.keys()]
        .filter((id) => !this.tasks.has(id))
        .map((id) => unrecovered('I6', 0, `task ${id} was accepted but does not exist`)),
    ];
  }

  /** I7: once the world has recovered, each process holds no more than exists. */
  leaks(): string[] {
    const { agents, instances } = this.#world;
    // While agents are balanced, each has a connection that is not a session yet.
    const moving = agents.filter(({ agent }) => agent?.link.state.attempt !== undefined).length;
    const ofInstances = instances.flatMap(({ core, name, isOpen }) => {
      if (core === undefined || !isOpen) return [];
      const { sessions, sessionLosses, authority } = core.roster;
      const held = agents.filter(({ uuid }) => sessions.get(uuid) !== undefined).length;
      // The annealer's duty never ends.
      const endless = this.duties.holderOf(ANNEALER_DUTY_ID) === name ? 1 : 0;
      const waits = core.tasks.stats().waits + core.waitlist.stats().waits;
      return [
        [core.link.connections > held + moving, `keeps ${core.link.connections} connections of ${held} agents`],
        [authority.waiting + sessionLosses.queued > 0, 'keeps accepts or session losses of servers it does not hold'],
        [authority.alternations > 0, 'found alternating agents although there are none'],
        [waits > 0, `keeps ${waits} waits without a caller`],
        [core.duties.held > endless, `keeps ${core.duties.held - endless} duties that have ended`],
        [core.waitlist.stats().defects > 0, 'found queues without an active ticket'],
      ].flatMap(([isSo, what]) => (isSo ? [`${name} ${what}`] : []));
    });
    const ofAgents = agents.flatMap(({ agent, name }) => {
      const left = agent?.inventory(false).length ?? 0;
      return left > 0 ? [`${name} keeps ${left} tasks that have ended`] : [];
    });
    return [...ofInstances, ...ofAgents];
  }

  /** Over the whole run: what really happened on the servers, and what callers believed. */
  atTheEnd(): void {
    const { accepted, holds } = this.#world.workload;
    for (const task of accepted.values()) this.tasks.checkAnswered(task);
    this.tasks.checkExecutions();
    this.push.atTheEnd();
    this.annealer.atTheEnd();
    for (const hold of holds) this.tickets.checkHold(hold, holds);
  }
}

const unrecovered = (invariant: Invariant, withinMs: number, what: string): Unrecovered => ({
  invariant,
  withinMs,
  what,
});

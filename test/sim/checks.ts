/**
 * What must hold (docs/design.md section 8), asked of every change as it commits, each second of virtual time, and at the end.
 * The checks know the whole world: what the database says, what each process holds, and what really happened on the servers.
 */
import { ArrivalChecks } from './arrival-checks.ts';
import type { Change } from './changes.ts';
import { RosterChecks } from './roster-checks.ts';
import type { HeldUp } from './sim-postgres.ts';
import { TaskChecks } from './task-checks.ts';
import { TicketChecks } from './ticket-checks.ts';
import type { World } from './world.ts';

export const INVARIANTS = ['I1', 'I2', 'I3', 'I4', 'I5', 'I6', 'I7'] as const;
export type Invariant = (typeof INVARIANTS)[number];

export interface Unwell {
  invariant: Invariant;
  withinMs: number;
  what: string;
}

/** Of tasks: their own deadlines on top, as far as they are shortened here. */
const WORK_WELL_MS = 74_000;

/** A wait as its caller saw it. */
export interface SeenWait {
  what: string;
  since: number;
  timeoutMs: number;
  /** Whether the answer says that it has not happened; `lost` when none came. */
  answer: 'event' | 'timeout' | 'lost';
  /** When that happened which it waited for. */
  causeAt: number | undefined;
}

/** Longer than a wide answer takes when its client reads. */
const HELD_UP_MS = 300;
/** Trips, and a turn of whoever reads for all waits. */
const WAIT_SLACK_MS = 1_500;

export class Checks {
  readonly roster: RosterChecks;
  readonly tasks: TaskChecks;
  readonly tickets: TicketChecks;
  readonly #arrivals: ArrivalChecks | undefined;
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
    if (world.hasArrivals) this.#arrivals = new ArrivalChecks(world);
    this.roster = new RosterChecks(world);
    this.tasks = new TaskChecks(world);
    this.tickets = new TicketChecks(world);
  }

  /** One row changed; `committed` follows when all of the statement's have been told. */
  changed(change: Change): void {
    switch (change.table) {
      case 'cnapi_instances':
        return this.roster.instanceChanged(change.before, change.after);
      case 'cnapi_roster_authority':
        return this.roster.rowChanged(change);
      case 'cnapi_tasks':
        return this.tasks.rowChanged(change.before, change.after);
      case 'cnapi_waitlist_tickets':
        return this.tickets.rowChanged(change.before, change.after);
      default:
        return change satisfies never;
    }
  }

  committed(): void {
    this.tickets.committed();
  }

  /** Law 5: what a process does not read holds up nobody else. A slow network is slow for everybody. */
  heldUp({ who, label, by, ms }: HeldUp): void {
    const { postgres } = this.#world;
    if (who !== by && ms > HELD_UP_MS + 3 * postgres.trouble.slowMs)
      this.#world.violated(
        'I6',
        `${who} waited ${Math.round(ms)} ms for rows of an answer that ${by} has not read: ${label}`,
      );
  }

  /** Each second. */
  tick(): void {
    this.roster.tick();
    this.#arrivals?.tick();
  }

  /** I5: with the event, or at its timeout; with the bus gone within the slow poll. */
  waited({ what, since, timeoutMs, answer, causeAt }: SeenWait): void {
    const world = this.#world;
    const tookMs = world.time.now - since;
    const slowPollMs = world.instances[0]?.config.slowPollMs ?? 0;
    if (world.calmForMs('instances', 'arrivals', 'drains', 'network', 'database') < tookMs + slowPollMs) return;
    const lateMs = causeAt === undefined ? 0 : world.time.now - Math.max(since, causeAt);
    if (lateMs > slowPollMs + WAIT_SLACK_MS)
      world.violated('I5', `a wait for ${what} outlived its cause by ${Math.round(lateMs)} ms`);
    if (tookMs > timeoutMs + WAIT_SLACK_MS)
      world.violated('I5', `a wait for ${what} of ${timeoutMs} ms had no answer in ${Math.round(tookMs)} ms`);
    if (answer === 'timeout' && tookMs < timeoutMs)
      world.violated('I5', `a wait for ${what} of ${timeoutMs} ms was given up after ${Math.round(tookMs)} ms`);
  }

  /** What is not well yet, and how long after the last fault it may be so; nothing when the world has come to rest. */
  unwell(): Unwell[] {
    const { agents, legacyAgents, workload, connectedWithinMs } = this.#world;
    const isRunning = ({ uuid }: { uuid: string }) => this.roster.statusOf(uuid) === 'running';
    return [
      ...legacyAgents
        .filter((agent) => !isRunning(agent))
        .map(({ name }) => unwell('I1', connectedWithinMs, `${name} posts heartbeats and is not running`)),
      ...agents
        .filter((agent) => !isRunning(agent) || agent.agent?.link.isLive !== true)
        .map(({ name, uuid }) =>
          unwell('I1', connectedWithinMs, `${name} is up, without a session or ${this.roster.statusOf(uuid)}`),
        ),
      ...workload.unfinished.map(({ number, kind }) =>
        unwell('I5', WORK_WELL_MS, `operation ${number} (${kind}) has no end`),
      ),
      ...this.tasks.unended.map(({ id, state }) => unwell('I6', WORK_WELL_MS, `task ${id} is still ${state}`)),
      ...[...workload.accepted.keys()]
        .filter((id) => !this.tasks.has(id))
        .map((id) => unwell('I6', 0, `task ${id} was accepted and is not there`)),
    ];
  }

  /** I7: when the world has come to rest, each process holds no more than there is. */
  leaks(): string[] {
    const { agents, instances } = this.#world;
    // To be balanced: each has a connection that is not a session yet.
    const moving = agents.filter(({ agent }) => agent?.link.state.attempt !== undefined).length;
    const ofInstances = instances.flatMap(({ core, name, isOpen }) => {
      if (core === undefined || !isOpen) return [];
      const { sessions, sessionLosses, authority } = core.roster;
      const held = agents.filter(({ uuid }) => sessions.get(uuid) !== undefined).length;
      const waits = core.tasks.stats().waits + core.waitlist.stats().waits;
      return [
        [core.link.connections > held + moving, `keeps ${core.link.connections} connections of ${held} agents`],
        [authority.waiting + sessionLosses.queued > 0, 'keeps accepts or verdicts of nobody'],
        [authority.alternations > 0, 'found agents that take turns, and there are none'],
        [waits > 0, `keeps ${waits} waits of nobody`],
        [core.waitlist.stats().defects > 0, 'found queues without a holder'],
      ].flatMap(([isSo, what]) => (isSo ? [`${name} ${what}`] : []));
    });
    const ofAgents = agents.flatMap(({ agent, name }) => {
      const left = agent?.inventory().length ?? 0;
      return left > 0 ? [`${name} keeps ${left} tasks that have ended`] : [];
    });
    return [...ofInstances, ...ofAgents];
  }

  /** Over the whole run: what really happened on the servers, and what callers believed. */
  atTheEnd(): void {
    const { accepted, holds } = this.#world.workload;
    for (const task of accepted.values()) this.tasks.checkAnswered(task);
    this.tasks.checkExecutions();
    for (const hold of holds) this.tickets.checkHold(hold, holds);
  }
}

const unwell = (invariant: Invariant, withinMs: number, what: string): Unwell => ({ invariant, withinMs, what });

/**
 * What must hold (DESIGN section 8), asked of every change as it commits, each second of virtual time, and at the end.
 * A check knows the whole world: what the database says, what each process holds, and what really happened on the servers.
 */
import type { Session } from '../../lib/roster/session.ts';
import type { Change, RosterRow, TaskRow, TicketRow } from './changes.ts';
import type { Disturbance } from './faults.ts';
import type { SimAgent } from './sim-agent.ts';
import type { SimInstance } from './sim-instance.ts';
import type { Execution } from './sim-machine.ts';
import type { World } from './world.ts';

export type Invariant = 'I1' | 'I2' | 'I3' | 'I4' | 'I5' | 'I6' | 'I7';

/** Of what an instance does with a statement: two trips, and the timers' own jitter. */
const SLACK_MS = 300;
const SESSION_REASONS = ['silent', 'closed', 'no-inventory', 'protocol-error', 'slow-reader'];

export class Checks {
  readonly #world: World;
  readonly #liveRuns = new Map<string, string>();
  readonly #roster = new Map<string, RosterRow>();
  readonly #tasks = new Map<string, TaskRow>();
  readonly #tickets = new Map<string, TicketRow>();
  readonly #touchedQueues = new Set<number>();
  readonly #quietSince = new Map<string, number>();

  constructor(world: World) {
    this.#world = world;
  }

  get tasks(): ReadonlyMap<string, TaskRow> {
    return this.#tasks;
  }

  statusOf(serverUuid: string): string | undefined {
    return this.#roster.get(serverUuid)?.status;
  }

  /** One row changed; `committed` follows when all of the statement's have been told. */
  changed(change: Change): void {
    const world = this.#world;
    switch (change.table) {
      case 'cnapi_instances': {
        const { before, after } = change;
        if (after?.state === 'live') this.#liveRuns.set(after.run, after.cnapi_uuid);
        else this.#liveRuns.delete((after ?? before)?.run ?? '');
        if (before?.state === 'dead' && after?.state === 'live')
          world.violated('I2', `run ${after.run} came back to life`);
        return;
      }
      case 'cnapi_roster_authority':
        return this.#rosterChanged(change.before, change.after);
      case 'cnapi_tasks':
        return this.#taskChanged(change.before, change.after);
      case 'cnapi_waitlist_tickets':
        return this.#ticketChanged(change.before, change.after);
      default:
        return change satisfies never;
    }
  }

  committed(): void {
    for (const queue of this.#touchedQueues) this.#checkQueue(queue);
    this.#touchedQueues.clear();
  }

  /** A wait was answered, or given up by the caller. */
  waited({
    what,
    since,
    answer,
    timeoutMs,
  }: {
    what: string;
    since: number;
    answer: number | 'lost';
    timeoutMs: number;
  }): void {
    const tookMs = this.#world.time.now - since;
    if (
      answer !== 'lost' &&
      tookMs > timeoutMs + 5_000 + SLACK_MS &&
      this.#world.calmForMs('control') > tookMs + 40_000
    )
      this.#world.violated('I5', `a wait for ${what} of ${timeoutMs} ms was answered after ${Math.round(tookMs)} ms`);
  }

  // --- the roster: I1 and I2

  #rosterChanged(before: RosterRow | null, after: RosterRow | null): void {
    const row = after ?? before;
    if (row === null) return;
    if (after === null) return void this.#roster.delete(row.server_uuid);
    this.#roster.set(after.server_uuid, after);
    if (before === null) return;
    const name = this.#world.nameOfServer(after.server_uuid);
    if (after.epoch < before.epoch) this.#world.violated('I2', `${name}: epoch ${before.epoch} -> ${after.epoch}`);
    if (after.epoch !== before.epoch) return;
    if (before.status === 'unknown' && after.status === 'running')
      this.#world.violated('I2', `${name} is running again without an accept, at epoch ${after.epoch}`);
    if (before.run !== after.run && before.run !== null && after.run !== null && this.#liveRuns.has(before.run))
      this.#world.violated('I2', `${name}: epoch ${after.epoch} went from a live run to another`);
    if (before.status === 'running' && after.status === 'unknown') this.#checkVerdict(name, after);
  }

  #checkVerdict(name: string, row: RosterRow): void {
    const owner = row.run === null ? undefined : this.#liveRuns.get(row.run);
    const session = this.#sessionOf(row);
    if (owner !== undefined && session !== undefined && this.#isHeard(session))
      this.#world.violated('I1', `${name} is unknown (${row.reason}) while ${session.instance.name} hears it`);
    if (SESSION_REASONS.includes(row.reason)) {
      if (owner !== undefined && owner !== row.said_by)
        this.#world.violated('I2', `${name}: ${row.reason}, said by ${row.said_by} of a session of ${owner}`);
    } else if (row.reason !== 'removed' && owner !== undefined && (owner !== row.said_by || session !== undefined))
      this.#world.violated('I2', `${name}: ${row.reason}, although its run is live`);
  }

  /** The open session that a row stands for, at an instance that can act for it. */
  #sessionOf(row: RosterRow): { instance: SimInstance; session: Session } | undefined {
    for (const instance of this.#world.instances) {
      const session = instance.isUp ? instance.core?.roster.sessions.get(row.server_uuid) : undefined;
      const isIt = session !== undefined && !session.isEnded && session.epoch === row.epoch && session.run === row.run;
      if (isIt && instance.core?.roster.instances.trouble === undefined) return { instance, session };
    }
    return undefined;
  }

  #isHeard({ instance, session }: { instance: SimInstance; session: Session }): boolean {
    return this.#world.time.now - session.heardAt < instance.config.silenceMs;
  }

  /** Each second: whoever cannot be heard is `unknown` in time. The bound is that of the worst that happened lately. */
  tick(): void {
    const world = this.#world;
    for (const agent of world.agents) {
      const isQuiet = !agent.isUp;
      if (!isQuiet) this.#quietSince.delete(agent.name);
      else if (!this.#quietSince.has(agent.name)) this.#quietSince.set(agent.name, world.time.now);
      if (isQuiet && this.statusOf(agent.uuid) === 'running') this.#checkDetection(agent);
    }
  }

  #checkDetection(agent: SimAgent): void {
    const quietMs = this.#world.time.now - (this.#quietSince.get(agent.name) ?? this.#world.time.now);
    const config = this.#world.instances[0]?.config;
    if (config === undefined) return;
    const { silenceMs, checkMs, leaseMs, adoptGraceMs, startGraceMs } = config;
    const afterControl = startGraceMs + leaseMs + adoptGraceMs + 3_000;
    const bounds: [Disturbance, number][] = [
      ['control', afterControl],
      ['instances', leaseMs + adoptGraceMs + 3_000],
    ];
    const isExcused = bounds.some(([kind, bound]) => this.#world.calmForMs(kind) < bound + SLACK_MS);
    if (!isExcused && quietMs > silenceMs + checkMs + 1_000 + SLACK_MS)
      this.#world.violated('I1', `${agent.name} has been gone for ${Math.round(quietMs)} ms and is running`);
  }

  // --- tasks: I3

  #taskChanged(before: TaskRow | null, after: TaskRow | null): void {
    if (after === null) {
      if (before !== null) this.#world.violated('I6', `task ${before.id} was deleted`);
      return;
    }
    this.#tasks.set(after.id, after);
    if (before === null) return;
    const isEnded = before.state === 'ended';
    if (isEnded && (after.state !== 'ended' || after.outcome !== before.outcome || after.result !== before.result))
      this.#world.violated('I3', `task ${after.id} had ended (${before.outcome}) and changed (${after.outcome})`);
    const step = after.attempt - before.attempt;
    if (step !== 0 && !(step === 1 && before.state === 'queued' && after.state === 'claimed'))
      this.#world.violated('I3', `task ${after.id}: attempt ${before.attempt} -> ${after.attempt}`);
    if (!isEnded && after.state === 'ended') this.#checkEnd(after);
  }

  /** An end that says `complete` is what really happened, now. */
  #checkEnd(task: TaskRow): void {
    if (task.outcome !== 'complete') return;
    const { exitCode, stdout } = JSON.parse(task.result ?? '{}') as { exitCode?: number; stdout?: string };
    const operation = String(stdout ?? '').trim();
    const runs = this.#executionsOf(task.server_uuid, operation);
    if (!runs.some((run) => run.how === 'done' && run.exitCode === exitCode))
      this.#world.violated(
        'I3',
        `task ${task.id} is complete with exit code ${exitCode}, which ${operation} never had`,
      );
  }

  #executionsOf(serverUuid: string, operation: string): Execution[] {
    const agent = this.#world.agents.find(({ uuid }) => uuid === serverUuid);
    return (agent?.server.executions ?? []).filter((run) => run.operation === operation);
  }

  // --- tickets: I4

  #ticketChanged(before: TicketRow | null, after: TicketRow | null): void {
    if (after !== null) this.#tickets.set(after.uuid, after);
    else if (before !== null) this.#tickets.delete(before.uuid);
    const ticket = after ?? before;
    if (ticket === null) return;
    this.#touchedQueues.add(ticket.queue);
    const isOver = before?.status === 'finished' || before?.status === 'expired';
    if (isOver && after !== null && after.status !== before.status)
      this.#world.violated('I4', `ticket ${ticket.uuid}: ${before.status} -> ${after.status}`);
  }

  #checkQueue(queue: number): void {
    const inQueue = [...this.#tickets.values()].filter((ticket) => ticket.queue === queue);
    const active = inQueue.filter(({ status }) => status === 'active');
    const queued = inQueue.filter(({ status }) => status === 'queued');
    if (active.length > 1) this.#world.violated('I4', `queue ${queue} has ${active.length} active tickets`);
    if (active.length === 0 && queued.length > 0)
      this.#world.violated('I4', `queue ${queue}: ${queued.length} tickets wait and none is active`);
    const [holder] = active;
    if (holder !== undefined && queued.some(({ place }) => place < holder.place))
      this.#world.violated('I4', `queue ${queue}: the ticket at place ${holder.place} is active before its turn`);
  }

  // --- at the end

  /** What is not well yet; nothing when the world has come to rest. */
  unwell(): string[] {
    const world = this.#world;
    const complaints: string[] = [];
    for (const agent of world.agents) {
      if (this.statusOf(agent.uuid) !== 'running')
        complaints.push(`I1 ${agent.name} is up and ${this.statusOf(agent.uuid)}`);
      if (agent.agent?.link.isLive !== true) complaints.push(`I1 ${agent.name} has no session`);
    }
    for (const { number, kind } of world.workload.unfinished)
      complaints.push(`I5 operation ${number} (${kind}) has no end`);
    for (const task of this.#tasks.values())
      if (task.state !== 'ended') complaints.push(`I6 task ${task.id} is ${task.state}`);
    for (const id of world.workload.accepted.keys())
      if (!this.#tasks.has(id)) complaints.push(`I6 task ${id} was accepted and is not there`);
    return complaints;
  }

  /** What each process holds when the world has come to rest: no more than there is. */
  leaks(): string[] {
    const complaints: string[] = [];
    for (const { core, name, isOpen } of this.#world.instances) {
      if (core === undefined || !isOpen) continue;
      const { sessions, verdicts, authority } = core.roster;
      const held = this.#world.agents.filter(({ uuid }) => sessions.get(uuid) !== undefined).length;
      if (core.link.connections > held)
        complaints.push(`${name} keeps ${core.link.connections} connections of ${held} agents`);
      if (sessions.size > held) complaints.push(`${name} keeps ${sessions.size} sessions of ${held} agents`);
      if (authority.waiting > 0) complaints.push(`${name}: ${authority.waiting} accepts wait`);
      if (verdicts.queued > 0) complaints.push(`${name}: ${verdicts.queued} verdicts wait`);
      if (core.tasks.stats().waits + core.waitlist.stats().waits > 0) complaints.push(`${name} keeps waits of nobody`);
      if (core.waitlist.stats().defects > 0) complaints.push(`${name} mended queues without a holder`);
    }
    for (const { agent, name } of this.#world.agents) {
      const left = agent?.inventory().length ?? 0;
      if (left > 0) complaints.push(`${name} keeps ${left} tasks in its journal`);
    }
    return complaints;
  }

  /** Over the whole run: what really happened on the servers, and what callers believed. */
  atTheEnd(): void {
    for (const task of this.#world.workload.accepted.values()) this.#checkExecutions(task);
    for (const hold of this.#world.workload.holds) this.#checkHold(hold);
  }

  #checkExecutions({ id, operation, idempotent }: { id: string; operation: string; idempotent: boolean }): void {
    const server = this.#tasks.get(id)?.server_uuid;
    if (server === undefined) return;
    const runs = this.#executionsOf(server, operation);
    if (!idempotent && runs.length > 1)
      this.#world.violated('I3', `${operation} (${id}) was begun ${runs.length} times`);
    for (const [index, run] of runs.entries()) {
      const beside = runs.slice(index + 1).find((other) => other.beganAt < (run.endedAt ?? Number.POSITIVE_INFINITY));
      if (beside !== undefined)
        this.#world.violated('I3', `${operation} (${id}) ran twice at once, by ${run.agent} and ${beside.agent}`);
    }
  }

  #checkHold(hold: { queue: string; ticket: string; from: number; until: number }): void {
    const other = this.#world.workload.holds.find(
      (one) => one !== hold && one.queue === hold.queue && one.from >= hold.from && one.from < hold.until - SLACK_MS,
    );
    if (other !== undefined && other.from < other.until)
      this.#world.violated('I4', `${hold.ticket} and ${other.ticket} held ${hold.queue} at once`);
  }
}

/**
 * I1 and I2: the status of each server is true, in time, and set by an instance that may set it.
 */
import { MAX_RETURN_MS } from '../../lib/protocol/limits.ts';
import type { Change, InstanceRow, RosterRow } from './changes.ts';
import type { SimAgent } from './sim-agent.ts';
import type { SimInstance } from './sim-instance.ts';
import type { InstanceEnd } from './sim-link.ts';
import type { World } from './world.ts';

/** The time of an instance for a statement: two trips, and the jitter of timers. */
const SLACK_MS = 300;
const ONE_STATEMENT_MS = 1_000;
/** The time until a beat has recorded that an agent was told to return. */
const RECORDED_MS = 2_000;
/** After this time a past fault explains no session loss any more. */
const UNDISTURBED_MS = 12_000;
const SESSION_REASONS = ['silent', 'closed', 'no-inventory', 'protocol-error', 'slow-reader'];

interface Deferral {
  at: number;
  returnAt: number;
  by: SimInstance;
}

export class RosterChecks {
  readonly #world: World;
  /** The instance of each run that is live in the database. */
  readonly #liveRuns = new Map<string, string>();
  /** The same for all runs, past ones too. */
  readonly #instanceOfRun = new Map<string, string>();
  readonly #rows = new Map<string, RosterRow>();
  readonly #quietSince = new Map<string, number>();
  /** What each agent was told last, and the latest time at which any was told to return. */
  readonly #deferrals = new Map<string, Deferral>();
  #latestReturnAt = Number.NEGATIVE_INFINITY;

  constructor(world: World) {
    this.#world = world;
  }

  statusOf(serverUuid: string): string | undefined {
    return this.#rows.get(serverUuid)?.status;
  }

  /** The uuid of the instance that has or had this run. */
  instanceOf(run: string): string | undefined {
    return this.#instanceOfRun.get(run);
  }

  rowOf(serverUuid: string): RosterRow | undefined {
    return this.#rows.get(serverUuid);
  }

  instanceChanged(before: InstanceRow | null, after: InstanceRow | null): void {
    if (after !== null) this.#instanceOfRun.set(after.run, after.cnapi_uuid);
    if (after?.state === 'dead' && after.end_reason === 'lapsed') this.#checkLapse(after);
    if (after?.state === 'live') this.#liveRuns.set(after.run, after.cnapi_uuid);
    else this.#liveRuns.delete((after ?? before)?.run ?? '');
    if (before?.state === 'dead' && after?.state === 'live')
      this.#world.violated('I2', `run ${after.run} became live again after it was dead`);
  }

  /** An instance that beats is not dead. */
  #checkLapse({ run, cnapi_uuid }: InstanceRow): void {
    const instance = this.#world.instances.find(({ uuid }) => uuid === cnapi_uuid);
    if (instance?.core?.roster.membership.run !== run || !instance.isUp) return;
    if (this.#world.calmForMs(`instances:${instance.name}`, 'database') > instance.config.leaseMs + 2_000)
      this.#world.violated('I2', `${instance.name} was declared dead although it had no fault`);
  }

  /** An instance told an agent to return later. */
  deferred(serverUuid: string, by: SimInstance, inMs: number): void {
    const at = this.#world.time.now;
    const returnAt = at + inMs;
    this.#deferrals.set(serverUuid, { at, returnAt, by });
    this.#latestReturnAt = Math.max(this.#latestReturnAt, returnAt);
  }

  rowChanged({ before, after }: Extract<Change, { table: 'cnapi_roster_authority' }>): void {
    if (after === null) return void (before && this.#rows.delete(before.server_uuid));
    this.#rows.set(after.server_uuid, after);
    if (before === null) return;
    const name = this.#world.nameOfServer(after.server_uuid);
    if (after.epoch < before.epoch) this.#world.violated('I2', `${name}: epoch ${before.epoch} -> ${after.epoch}`);
    // It connected between two checks.
    if (after.epoch > before.epoch) this.#quietSince.delete(name);
    if (after.epoch === before.epoch) this.#checkWithinEpoch(name, before, after);
  }

  #checkWithinEpoch(name: string, before: RosterRow, after: RosterRow): void {
    const { epoch } = after;
    if (before.status === 'unknown' && after.status === 'running')
      this.#world.violated('I2', `${name} became running without an accept, under epoch ${epoch}`);
    if (before.incarnation !== after.incarnation || before.conn !== after.conn)
      this.#world.violated('I2', `${name}: two sessions were accepted under epoch ${epoch}`);
    if (before.run !== after.run && before.run !== null && after.run !== null && this.#liveRuns.has(before.run))
      this.#world.violated('I2', `${name}: epoch ${epoch} moved from a live run to another`);
    if (before.status === 'running' && after.status === 'unknown') this.#checkStatusChange(name, after);
  }

  #checkStatusChange(name: string, row: RosterRow): void {
    if (row.reason === 'removed') return;
    if (row.reason === 'legacy-silent') return this.#checkLegacySilence(row.server_uuid);
    const owner = this.#world.instances.find(({ uuid }) => uuid === this.#liveRuns.get(row.run ?? ''));
    if (owner === undefined) return this.#checkObeys(name, row);
    const isOpen = this.#holdsSession(owner, row);
    if (SESSION_REASONS.includes(row.reason)) this.#checkSessionLoss(name, row, owner);
    else if (owner.uuid !== row.decided_by || isOpen)
      this.#world.violated('I2', `${name} became unknown (${row.reason}) although its owner ${owner.name} is live`);
    if (isOpen)
      this.#world.violated('I1', `${name} became unknown (${row.reason}) while ${owner.name} holds its session`);
  }

  /**
   * An agent that does what an instance told it is not lost. No world lasts longer than it may be
   * told.
   */
  #checkObeys(name: string, row: RosterRow): void {
    const { agents, time } = this.#world;
    const deferral = this.#deferrals.get(row.server_uuid);
    const agent = agents.find(({ uuid }) => uuid === row.server_uuid);
    if (deferral === undefined || agent?.isUp !== true || agent.agent?.link.state.phase !== 'waiting') return;
    const { at, returnAt, by } = deferral;
    const wasRecorded = by.isUp && by.startedAt < at && this.#world.calmForMs('database') > time.now - at;
    if (wasRecorded && time.now - at > RECORDED_MS && time.now < returnAt + by.config.reconnectMaxMs)
      this.#world.violated(
        'I1',
        `${name} became unknown (${row.reason}) although it waits as ${by.name} told it ${Math.round(time.now - at)} ms ago`,
      );
  }

  #checkSessionLoss(name: string, row: RosterRow, owner: SimInstance): void {
    if (owner.uuid !== row.decided_by)
      this.#world.violated(
        'I2',
        `${name} became unknown (${row.reason}) for a session of ${owner.name}, set by another instance`,
      );
    const end = owner.connectionOf(row.server_uuid, row.epoch);
    if (row.reason === 'silent' && end !== undefined) this.#checkSilence(name, end, owner.config.silenceMs);
    if (row.reason !== 'silent') this.#checkLoss(name, row.reason);
  }

  /**
   * No agent here closes its link, floods or stops reading by itself; one that is asked to move
   * connects to the next instance before it leaves.
   */
  #checkLoss(name: string, reason: string): void {
    const isCalm =
      this.#world.calmForMs(`agents:${name}`, 'network', 'database', 'instances') > UNDISTURBED_MS ||
      ['protocol-error', 'slow-reader'].includes(reason);
    if (isCalm) this.#world.violated('I1', `${name} became unknown (${reason}) without a cause`);
  }

  /**
   * A heartbeat that was answered counts, whichever instance took it and whatever happened to that
   * instance.
   */
  #checkLegacySilence(serverUuid: string): void {
    const agent = this.#world.legacyAgents.find(({ uuid }) => uuid === serverUuid);
    const lifetimeMs = this.#world.instances[0]?.config.legacyHeartbeatLifetimeMs ?? 0;
    const quietMs = this.#world.time.now - (agent?.heardAt ?? 0);
    const wasRecorded = this.#world.calmForMs('instances', 'drains', 'database', 'network') > lifetimeMs + quietMs;
    if (agent !== undefined && wasRecorded && quietMs < lifetimeMs)
      this.#world.violated('I1', `${agent.name} became unknown (silent) ${Math.round(quietMs)} ms after its heartbeat`);
  }

  /**
   * Data that had reached the machine counts as received, whether or not the process had read it.
   */
  #checkSilence(name: string, end: InstanceEnd, silenceMs: number): void {
    const leftAt = end.leftAt ?? this.#world.time.now;
    const heardAt = end.incoming?.lastArrivalBefore(leftAt);
    if (heardAt !== undefined && leftAt - heardAt < silenceMs)
      this.#world.violated(
        'I1',
        `${name} became unknown (silent) ${Math.round(leftAt - heardAt)} ms after its last byte`,
      );
  }

  /** An open session of this epoch, at an instance that can act for it. */
  #holdsSession({ core, isUp }: SimInstance, row: RosterRow): boolean {
    if (core === undefined || !isUp || core.roster.membership.unhealthyReason !== undefined) return false;
    const session = core.roster.sessions.get(row.server_uuid);
    return session !== undefined && !session.isEnded && session.epoch === row.epoch && session.run === row.run;
  }

  /** Each second: a server that is gone is `unknown` in time. */
  tick(): void {
    const { agents, time } = this.#world;
    for (const agent of agents) {
      const isHeard = agent.isUp && !this.#world.network.isCut(agent.name, '*');
      if (isHeard) this.#quietSince.delete(agent.name);
      else if (!this.#quietSince.has(agent.name)) this.#quietSince.set(agent.name, time.now);
      const since = this.#quietSince.get(agent.name);
      if (since !== undefined && this.statusOf(agent.uuid) === 'running') this.#checkDetection(agent, time.now - since);
    }
    for (const agent of this.#world.legacyAgents) {
      const isOverdue = agent.isSilent && this.statusOf(agent.uuid) === 'running';
      if (isOverdue && agent.heardAt !== undefined) this.#checkLegacyDetection(agent.name, time.now - agent.heardAt);
    }
  }

  /**
   * Checks an agent without a link. Its silence counts from a check of all heartbeats, once per
   * period.
   */
  #checkLegacyDetection(name: string, quietMs: number): void {
    const config = this.#world.instances[0]?.config;
    if (config === undefined) return;
    const { legacyHeartbeatLifetimeMs, legacyHeartbeatRecordMs, legacyGraceMs } = config;
    const boundMs =
      legacyHeartbeatLifetimeMs + 2 * legacyHeartbeatRecordMs + legacyGraceMs + ONE_STATEMENT_MS + SLACK_MS;
    if (this.#isOtherwiseCalm(config) && quietMs > boundMs)
      this.#world.violated('I1', `${name} has posted nothing for ${Math.round(quietMs)} ms and is still running`);
  }

  /** Only agents have failed within the longest bound of I1. */
  #isOtherwiseCalm(config: SimInstance['config']): boolean {
    return this.#world.calmForMs('instances', 'drains', 'network', 'database') > longestBoundMs(config);
  }

  /** The bound of the worst fault of the instances that have to notice. */
  #checkDetection(agent: SimAgent, quietMs: number): void {
    const { instances } = this.#world;
    const config = instances[0]?.config;
    const owner = instances.find(({ uuid }) => uuid === this.#instanceOf(agent.uuid));
    if (config === undefined || owner === undefined || !this.#isReadable(config, owner.name)) return;
    const { silenceMs, checkMs, leaseMs, ownerlessGraceMs, reconnectMaxMs } = config;
    const longestMs = longestBoundMs(config);
    const isUndisturbed = ({ isUp, name, startedAt }: SimInstance) =>
      isUp &&
      this.#world.time.now - startedAt > longestMs &&
      this.#world.calmForMs(`instances:${name}`, `drains:${name}`) > longestMs;
    const returnedAt = this.#latestReturnAt + reconnectMaxMs + ownerlessGraceMs + 3_000 + SLACK_MS;
    const awaitedMs = this.#world.time.now > returnedAt ? 0 : MAX_RETURN_MS + reconnectMaxMs;
    const sinceOwnerMs = Math.min(quietMs, this.#world.calmForMs(`instances:${owner.name}`, `drains:${owner.name}`));
    const isLate = isUndisturbed(owner)
      ? quietMs > silenceMs + checkMs + ONE_STATEMENT_MS + SLACK_MS
      : instances.some(isUndisturbed)
        ? sinceOwnerMs > leaseMs + ownerlessGraceMs + 3_000 + SLACK_MS + awaitedMs
        : Math.min(quietMs, this.#world.calmForMs('instances', 'drains')) > longestMs + awaitedMs;
    if (isLate)
      this.#world.violated('I1', `${agent.name} has been gone for ${Math.round(quietMs)} ms and is still running`);
  }

  #instanceOf(serverUuid: string): string | undefined {
    return this.#instanceOfRun.get(this.#rows.get(serverUuid)?.run ?? '');
  }

  /**
   * Neither the database nor the network has failed for all, or for this instance, within the
   * longest bound.
   */
  #isReadable(config: SimInstance['config'], owner: string): boolean {
    return this.#world.calmForMs('database', 'network:*', `network:${owner}`) > longestBoundMs(config);
  }
}

/** The bound of I1 after an outage of everything. */
function longestBoundMs({ leaseMs, ownerlessGraceMs, startGraceMs }: SimInstance['config']): number {
  return startGraceMs + leaseMs + ownerlessGraceMs + 3_000 + SLACK_MS;
}

/**
 * I9: nothing of a push job starts below its quorum or after its end, a server takes part in one
 * job at a time, each node and each job ends once, with an end that has a cause, and no server and
 * no ticket is kept. A job with a ticket asks nobody before it holds it.
 *
 * The quorum counts the votes that are stored when the job begins to run. A vote that an agent
 * withdraws in that moment counts: its node ends as `unavailable`, and its command does not start.
 *
 * Callers change quorum and timeouts of a job that goes on. A coordinator may have decided by what
 * it read just before; so an end is judged by the most lenient of the values that were ever in
 * force.
 */
import type { NodeStatus } from '../../lib/protocol/api/push/job-schemas.ts';
import type { PushBusyRow, PushJobRow, PushNodeRow } from './changes.ts';
import { TICKET_TIMEOUT_MS } from './push.ts';
import { isStepOfNode } from './push-node-steps.ts';
import type { Execution } from './sim-machine.ts';
import type { World } from './world.ts';

/** The counter of deadlines, by which a new coordinator knows a job's age, and the trips. */
const TICK_SLACK_MS = 1_200;
/** After a slow poll, a connected agent is told again what to end. */
const SLACK_MS = 3_000;
const UNENDED: readonly NodeStatus[] = ['new', 'ready', 'running'];
const FAILURES = ['failed', 'crashed', 'timed_out'];
const NEXT: Record<PushJobRow['state'], readonly PushJobRow['state'][]> = {
  waiting: ['waiting', 'voting', 'aborting'],
  voting: ['voting', 'running', 'aborting'],
  running: ['running', 'aborting', 'ended'],
  aborting: ['aborting', 'ended'],
  ended: [],
};

interface Seen {
  row: PushJobRow;
  madeAt: number;
  /** When it began to ask its agents. */
  askedAt: number;
  /** The most lenient values that were in force. */
  maxQuorum: number;
  minVotingTimeoutMs: number;
  minRunTimeoutMs: number;
  hasAddedNodes: boolean;
  startedAt: number | undefined;
  /** Since when its commands must end. */
  overAt: number | undefined;
  endedAt: number | undefined;
  nodes: Map<string, PushNodeRow>;
}

export class PushChecks {
  readonly #world: World;
  readonly #jobs = new Map<string, Seen>();
  /** The nodes of each job. One statement creates a job and its nodes. */
  readonly #nodes = new Map<string, Map<string, PushNodeRow>>();
  readonly #busy = new Map<string, PushBusyRow>();
  /** Servers whose rows the present statement has changed. */
  readonly #touched = new Set<string>();
  /** Jobs of which it has started nodes. */
  readonly #starting = new Set<string>();
  /** For each job, the servers whose agents have said that they are ready. */
  readonly #voters = new Map<string, Set<string>>();
  /** Likewise, those that have said that they are not, or not any more. */
  readonly #withdrawn = new Map<string, Set<string>>();
  readonly #executions: Execution[] = [];

  constructor(world: World) {
    this.#world = world;
  }

  has(id: string): boolean {
    return this.#jobs.has(id);
  }

  get ended(): number {
    return [...this.#jobs.values()].filter(({ endedAt }) => endedAt !== undefined).length;
  }

  get executions(): number {
    return this.#executions.length;
  }

  get unended(): PushJobRow[] {
    return [...this.#jobs.values()].flatMap(({ row }) => (row.state === 'ended' ? [] : [row]));
  }

  /** Servers that a job or rehab still has. */
  get engaged(): PushBusyRow[] {
    return [...this.#busy.values()];
  }

  /** Jobs that have ended, and whose tickets have not. */
  get withTicket(): PushJobRow[] {
    const { tickets } = this.#world.checks;
    return [...this.#jobs.values()].flatMap(({ row }) => {
      const status = row.ticket === null ? undefined : tickets.statusOf(row.ticket);
      return row.state === 'ended' && (status === 'queued' || status === 'active') ? [row] : [];
    });
  }

  /** The number of jobs that began to ask after they had waited for their tickets. */
  get ticketed(): number {
    return [...this.#jobs.values()].filter(({ askedAt, madeAt }) => askedAt > madeAt).length;
  }

  /** The job no longer wants its commands. */
  isEnding(id: string): boolean {
    const state = this.#jobs.get(id)?.row.state;
    return state === 'aborting' || state === 'ended';
  }

  /** Whether the node's agent does not wait for its start any more. */
  isWithdrawn(job: string, serverUuid: string): boolean {
    return this.#withdrawn.get(job)?.has(serverUuid) === true;
  }

  jobChanged(before: PushJobRow | null, after: PushJobRow | null, who: string): void {
    if (after === null) return this.#violated(before?.id ?? '', 'was deleted');
    const now = this.#world.time.now;
    const seen = this.#seen(after);
    seen.row = after;
    seen.maxQuorum = Math.max(seen.maxQuorum, after.quorum);
    seen.minVotingTimeoutMs = Math.min(seen.minVotingTimeoutMs, after.voting_timeout_ms);
    seen.minRunTimeoutMs = Math.min(seen.minRunTimeoutMs, after.run_timeout_ms);
    if (before === null) return;
    if (before.state === 'ended') return this.#violated(after.id, `changed after its end as ${before.outcome}`);
    if (!NEXT[before.state].includes(after.state))
      this.#violated(after.id, `went from ${before.state} to ${after.state}`);
    if (after.state === 'ended' || (after.state === 'aborting' && !after.is_soft)) seen.overAt ??= now;
    if (before.state === after.state) return;
    this.#checkWriter(after.id, `is ${after.state}`, who);
    if (after.state === 'voting') this.#checkAsk(seen);
    if (after.state === 'voting') seen.askedAt = now;
    if (after.state === 'running') this.#checkStart(seen);
    if (after.state === 'running') seen.startedAt = now;
    if (after.state === 'aborting') this.#checkAbort(seen, before);
    if (after.state === 'ended') this.#checkEnd(seen, before);
    if (after.state === 'ended') seen.endedAt = now;
  }

  nodeChanged(before: PushNodeRow | null, after: PushNodeRow | null, who: string): void {
    if (after === null) return this.#violated(before?.job ?? '', 'lost a node');
    const name = this.#world.nameOfServer(after.server_uuid);
    if (before !== null && !UNENDED.includes(before.state))
      this.#violated(after.job, `the end of ${name} changed from ${before.state} to ${after.state}`);
    if (!isStepOfNode(before, after, this.#jobs.get(after.job)?.row.ending === 'timed_out'))
      this.#violated(after.job, `has ${name} as ${after.state} (${after.reason}), and it was ${before?.state}`);
    this.#nodesOf(after.job).set(after.server_uuid, after);
    const added = before === null ? this.#jobs.get(after.job) : undefined;
    if (added !== undefined) added.hasAddedNodes = true;
    // Any instance stores what a caller asks.
    const isRequest = before?.abort_requested !== after.abort_requested;
    if (before !== null && after.task !== null && !isRequest)
      this.#checkWriter(after.job, `has ${name} as ${after.state}`, who);
    this.#touched.add(after.server_uuid);
    if (after.task !== null && before?.task === null) this.#starting.add(after.job);
    if (before?.state === 'new' && after.state === 'ready' && this.isEnding(after.job))
      this.#violated(after.job, `counts the vote of ${name} after it began to end`);
    if (after.state === 'ready' && !this.#voters.get(after.job)?.has(after.server_uuid))
      this.#violated(after.job, `counts ${name} as ready, which has not voted`);
    const seen = this.#jobs.get(after.job);
    if (seen !== undefined && before !== null && !UNENDED.includes(after.state))
      this.#checkNodeEnd(seen, before, after);
  }

  busyChanged(before: PushBusyRow | null, after: PushBusyRow | null): void {
    this.#touched.add((after ?? before)?.server_uuid ?? '');
    if (after === null) this.#busy.delete(before?.server_uuid ?? '');
    else this.#busy.set(after.server_uuid, after);
    if (after !== null && before !== null && before.job !== after.job)
      this.#violated(after.job, `took ${this.#world.nameOfServer(after.server_uuid)} from job ${before.job}`);
  }

  /** After all rows of a statement: the rows of nodes and of servers agree. */
  committed(): void {
    for (const server of this.#touched) {
      const taking = [...this.#nodes].flatMap(([job, nodes]) =>
        ['ready', 'running'].includes(nodes.get(server)?.state ?? '') ? [job] : [],
      );
      const busy = this.#busy.get(server);
      const has = busy === undefined || busy.rehab_since !== null ? [] : [busy.job];
      if (taking.join() !== has.join())
        this.#violated(
          taking[0] ?? has[0] ?? '',
          `has ${this.#world.nameOfServer(server)}: by its nodes ${taking}; by its servers ${has}`,
        );
    }
    this.#touched.clear();
    for (const { row, nodes } of [...this.#starting].flatMap((job) => this.#jobs.get(job) ?? [])) {
      const started = [...nodes.values()].filter(({ state, task }) => task !== null && UNENDED.includes(state)).length;
      if (row.concurrency !== null && started > row.concurrency)
        this.#violated(row.id, `has started ${started} nodes at once, and ${row.concurrency} may`);
    }
    this.#starting.clear();
  }

  /** What an agent sent. */
  sent(serverUuid: string, text: string): void {
    if (!text.includes('"push_vote"')) return;
    const { job, ready } = JSON.parse(text) as { job: string; ready: boolean };
    const withdrawn = this.#withdrawn.get(job) ?? new Set();
    if (!ready) return void this.#withdrawn.set(job, withdrawn.add(serverUuid));
    const voters = this.#voters.get(job) ?? new Set();
    this.#voters.set(job, voters.add(serverUuid));
  }

  /** A command begins on a machine. */
  began(execution: Execution): void {
    const { job, serverUuid } = execution;
    if (job === undefined) return;
    this.#executions.push(execution);
    const name = this.#world.nameOfServer(serverUuid);
    const seen = this.#jobs.get(job);
    if (seen === undefined) return this.#violated(job, `runs on ${name} and does not exist`);
    const { state } = seen.nodes.get(serverUuid) ?? {};
    if (state === undefined) this.#violated(job, `started on ${name}, which is not one of its nodes`);
    if (seen.startedAt === undefined) this.#violated(job, `started on ${name} before it had its quorum`);
    const voters = this.#voters.get(job) ?? new Set();
    if (!voters.has(serverUuid)) this.#violated(job, `started on ${name}, which had not voted`);
    const beside = this.#executions.find(
      (other) =>
        other.serverUuid === serverUuid &&
        other !== execution &&
        other.endedAt === undefined &&
        other.forgottenAt === undefined,
    );
    if (beside !== undefined) this.#violated(job, `started on ${name} beside job ${beside.job}`);
    if (seen.endedAt !== undefined && this.#calmForMs(name) > this.#world.time.now - seen.endedAt + SLACK_MS)
      this.#violated(job, `started on ${name} after its end`);
  }

  /** Each second: what a job has left is ended where its server is connected. */
  tick(): void {
    const { now } = this.#world.time;
    const boundMs = (this.#world.instances[0]?.config.slowPollMs ?? 0) + SLACK_MS;
    for (const { job = '', serverUuid, beganAt, endedAt, forgottenAt } of this.#executions) {
      const over = this.#jobs.get(job)?.overAt;
      if (endedAt !== undefined || forgottenAt !== undefined || over === undefined) continue;
      const agent = this.#world.agents.find(({ uuid }) => uuid === serverUuid);
      if (agent === undefined || agent.agent?.link.isLive !== true || !agent.isUp) continue;
      const lateMs = Math.min(now - over, now - beganAt, this.#calmForMs(agent.name));
      if (lateMs > boundMs) this.#violated(job, `runs on ${agent.name} ${now - over} ms after it had to end`);
    }
    for (const { name, isUp, agent } of this.#world.agents) {
      if (!isUp || agent?.link.isLive !== true || agent.pushState.name !== 'waiting') continue;
      const { jobId: job } = agent.pushState;
      const lateMs = Math.min(now - (this.#jobs.get(job)?.endedAt ?? now), this.#calmForMs(name));
      if (lateMs > boundMs) this.#violated(job, `is awaited by ${name} ${Math.round(lateMs)} ms after its end`);
    }
  }

  /** Checks at the end that no command ran for a node that says so. */
  atTheEnd(): void {
    for (const { row, nodes } of this.#jobs.values())
      for (const { server_uuid: server, state, task } of nodes.values()) {
        const ran = this.#executions.some(({ job, serverUuid }) => job === row.id && serverUuid === server);
        const name = this.#world.nameOfServer(server);
        if (ran && (state === 'nacked' || task === null)) this.#violated(row.id, `ran on ${name}, which is ${state}`);
      }
  }

  /** Only the holder of its duty carries out a job. */
  #checkWriter(id: string, what: string, who: string): void {
    const holder = this.#world.checks.duties.holderOf(id);
    if (who !== holder) this.#violated(id, `${what} by ${who}, but ${holder} holds its duty`);
  }

  /** A ticket may end in that moment; then the job is aborted after it. */
  #checkAsk({ row }: Seen): void {
    if (row.ticket === null || !this.#world.checks.tickets.wasActive(row.ticket))
      this.#violated(row.id, `began to ask its agents, and its ticket ${row.ticket} was never active`);
  }

  #checkStart({ row, nodes }: Seen): void {
    const ready = [...nodes.values()].filter(({ state }) => state === 'ready').length;
    if (ready < row.quorum) this.#violated(row.id, `began to run with ${ready} ready nodes of ${row.quorum}`);
  }

  /**
   * Checks that the job has a cause that its end names; the death of an instance is not a cause.
   */
  #checkAbort(seen: Seen, before: PushJobRow): void {
    const { row, nodes, madeAt, askedAt, startedAt, maxQuorum, minVotingTimeoutMs, minRunTimeoutMs } = seen;
    const { now } = this.#world.time;
    const count = (states: readonly string[]) =>
      [...nodes.values()].filter(({ state }) => states.includes(state)).length;
    const isOver = (since: number, ms: number) => now - since >= ms - TICK_SLACK_MS;
    switch (row.ending) {
      case 'quorum_failed':
        if (before.state !== 'voting') this.#violated(row.id, 'failed its quorum after it had begun to run');
        if (!seen.hasAddedNodes && count(['new', 'ready']) >= maxQuorum && !isOver(askedAt, minVotingTimeoutMs))
          this.#violated(row.id, `failed its quorum ${now - askedAt} ms after it had asked`);
        return;
      case 'timed_out':
        if (before.state === 'waiting' && isOver(madeAt, TICKET_TIMEOUT_MS)) return;
        if (startedAt === undefined || !isOver(startedAt, minRunTimeoutMs))
          this.#violated(row.id, `timed out ${now - (startedAt ?? now)} ms after its start`);
        return;
      default:
        if (
          row.ticket !== null &&
          ['finished', 'expired', undefined].includes(this.#world.checks.tickets.statusOf(row.ticket))
        )
          return;
        if (row.abort_requested === null && !(row.max_failures !== null && count(FAILURES) > row.max_failures))
          this.#violated(row.id, 'was aborted without a cause');
    }
  }

  #checkEnd({ row, nodes }: Seen, before: PushJobRow): void {
    const left = [...nodes.values()].filter(({ state }) => UNENDED.includes(state));
    if (left.length > 0) this.#violated(row.id, `ended with ${left.length} nodes that have not`);
    if (row.outcome !== (before.state === 'running' ? 'complete' : row.ending))
      this.#violated(row.id, `ended as ${row.outcome}, and was ${before.state} to end as ${row.ending}`);
    const isLeft = ({ task }: PushNodeRow) => {
      const of = task === null ? undefined : this.#world.checks.tasks.rowOf(task);
      return of !== undefined && of.state !== 'ended' && !of.is_cancelled;
    };
    if ([...nodes.values()].some(isLeft))
      this.#violated(row.id, 'ended with tasks that are neither over nor cancelled');
    const isUnasked = ({ state, reason }: PushNodeRow) => state === 'was_ready' && reason !== 'node-aborted';
    if (row.outcome === 'complete' && [...nodes.values()].some(isUnasked))
      this.#violated(row.id, 'is complete, and did not start a node that was ready');
    if (row.outcome === 'quorum_failed' && [...nodes.values()].some(({ task }) => task !== null))
      this.#violated(row.id, 'failed its quorum, but has started');
  }

  /** Whether what a node's end says is true in the world. */
  #checkNodeEnd({ row, askedAt, minVotingTimeoutMs }: Seen, before: PushNodeRow, after: PushNodeRow): void {
    const { server_uuid: server, state, reason, exit_code: exitCode } = after;
    const name = this.#world.nameOfServer(server);
    const wrong = (what: string) => this.#violated(row.id, `${name} is ${state} (${reason}), but ${what}`);
    const present = this.#world.checks.roster.rowOf(server);
    const runs = this.#executions.filter(({ job, serverUuid }) => job === row.id && serverUuid === server);
    if (state === 'succeeded' && !runs.some((run) => run.how === 'done' && run.exitCode === 0))
      wrong('no command ended so');
    if (state === 'failed' && exitCode !== null && !runs.some((run) => run.how === 'done' && run.exitCode === exitCode))
      wrong(`no command ended with ${exitCode}`);
    if (reason === 'down' && present?.status === 'running') wrong('its server is running');
    if (reason === 'restarted' && present?.incarnation === before.incarnation) wrong('its agent is the one that voted');
    if (reason === 'no-vote' && this.#world.time.now - askedAt < minVotingTimeoutMs - TICK_SLACK_MS)
      wrong('the time to vote was not over');
    if (reason === 'node-aborted' && after.abort_requested === null) wrong('nobody asked for that');
    if (
      reason !== 'node-aborted' &&
      ['was_ready', 'job-ended', 'given-up'].some((word) => word === state || word === reason) &&
      !this.isEnding(row.id)
    )
      wrong(`its job is ${row.state}`);
  }

  #nodesOf(job: string): Map<string, PushNodeRow> {
    const nodes = this.#nodes.get(job) ?? new Map<string, PushNodeRow>();
    this.#nodes.set(job, nodes);
    return nodes;
  }

  #seen(row: PushJobRow): Seen {
    const known = this.#jobs.get(row.id);
    if (known !== undefined) return known;
    const madeAt = this.#world.time.now;
    const made: Seen = {
      row,
      madeAt,
      askedAt: madeAt,
      maxQuorum: row.quorum,
      minVotingTimeoutMs: row.voting_timeout_ms,
      minRunTimeoutMs: row.run_timeout_ms,
      hasAddedNodes: false,
      startedAt: undefined,
      overAt: undefined,
      endedAt: undefined,
      nodes: this.#nodesOf(row.id),
    };
    this.#jobs.set(row.id, made);
    return made;
  }

  #calmForMs(agent: string): number {
    return this.#world.calmForMs(`agents:${agent}`, 'instances', 'drains', 'network', 'database');
  }

  #violated(id: string, what: string): void {
    this.#world.violated('I9', `push job ${id} ${what}`);
  }
}

/**
 * Watches the servers of legacy agents, which post their heartbeats to whichever instance DNS gives
 * them. Receives the posts, has them recorded, follows what the other instances record, and marks
 * `unknown` the servers that were silent everywhere. Any instance decides about any such server,
 * also when the instance that received its last heartbeat is dead. An instance that has not been
 * healthy long enough decides nothing (law 4). Per period it runs one statement for all its legacy
 * heartbeats and one read; a new server's first heartbeat is written immediately. Old records are
 * removed after each silenceMs. If the database fails, every silence starts again.
 * docs/design/legacy-agents.md.
 */

import { chunksOf } from '../../platform/chunks.ts';
import { messageOf } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import { BatchOnce } from '../../platform/postgres/batches/batch-once.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { HealthyTimer } from '../../platform/time/healthy-timer.ts';
import { Loop } from '../../platform/time/loop.ts';
import { TransitionLog } from '../roster/status/transition-log.ts';
import { deleteOldHeartbeats, readHeartbeatRows, recordHeartbeats, recordSilences } from './heartbeat-store.ts';
import { LegacyServers, type ReceivedHeartbeat } from './legacy-servers.ts';

interface MonitorTimes {
  legacyHeartbeatLifetimeMs: number;
  legacyHeartbeatRecordMs: number;
  legacyGraceMs: number;
}

interface HeartbeatMonitorDeps {
  /** A database of one connection with short timeouts, used by nothing else. */
  database: Queryable;
  cnapiUuid: string;
  times: MonitorTimes;
  healthyTimer: HealthyTimer;
  /** Whether this instance may now decide about servers that it never held. */
  mayMarkOthersUnknown: () => boolean;
  clock: Clock;
  log: Logger;
}

/** Since the start of this instance. */
interface MonitorStats {
  /** Servers that a legacy heartbeat of this instance made `running`. */
  returned: number;
  /** Servers that this instance found silent. */
  silent: number;
  /** Servers that were silent here while another instance received their heartbeats. */
  heardElsewhere: number;
  recorded: number;
  failedWrites: number;
  /** Posts ignored because there were too many new servers together, or too many servers. */
  dropped: number;
}

const MAX_SERVERS = 100_000;
const MAX_NEW = 1_000;
/** Per statement: bounds its locks and its time. */
const MAX_BATCH = 2_000;
/** Between two statements for urgent heartbeats, however many arrive. */
const MIN_PAUSE_MS = 100;
const RETRY_MS = 1_000;

export class HeartbeatMonitor {
  readonly stats: MonitorStats = {
    returned: 0,
    silent: 0,
    heardElsewhere: 0,
    recorded: 0,
    failedWrites: 0,
    dropped: 0,
  };
  readonly #deps: HeartbeatMonitorDeps;
  readonly #servers: LegacyServers;
  readonly #transitions: TransitionLog;
  readonly #recordings: BatchOnce<ReceivedHeartbeat>;
  readonly #loop: Loop;
  readonly #cleanup: Loop;
  /** The newest record when records were last folded. */
  #deletedTo = 0;
  #nextRoundAt = 0;
  #isStarted = false;

  constructor(deps: HeartbeatMonitorDeps) {
    const { legacyHeartbeatLifetimeMs: lifetimeMs, legacyHeartbeatRecordMs, legacyGraceMs } = deps.times;
    const silenceMs = lifetimeMs + legacyHeartbeatRecordMs + legacyGraceMs;
    this.#transitions = new TransitionLog(deps);
    this.#deps = deps;
    this.#servers = new LegacyServers({ lifetimeMs, silenceMs, maxServers: MAX_SERVERS, maxNew: MAX_NEW });
    this.#recordings = new BatchOnce<ReceivedHeartbeat>({
      ...deps,
      what: 'heartbeats of legacy agents',
      keyOf: ({ serverUuid }) => serverUuid,
      maxBatch: MAX_BATCH,
      work: (batch, database) => this.#record(batch, database),
    });
    this.#loop = new Loop({
      ...deps,
      what: 'legacy agents: recording of heartbeats',
      work: (signal) => this.#round(signal),
      pauseMs: () => this.#nextRoundAt - deps.clock.now(),
      minPauseMs: MIN_PAUSE_MS,
      retryMs: RETRY_MS,
    });
    // A server that still posts is recorded again within silenceMs, so nothing is written for it.
    this.#cleanup = new Loop({
      ...deps,
      what: 'legacy agents: removal of old records of heartbeats',
      work: async () => {
        this.#deletedTo = await deleteOldHeartbeats(deps.database, this.#deletedTo);
      },
      pauseMs: silenceMs,
      first: 'pause',
    });
    deps.healthyTimer.onTick((tickMs) => {
      if (this.#servers.countHealthyTick(tickMs) && deps.mayMarkOthersUnknown()) this.#loop.trigger();
    });
  }

  /** Servers whose heartbeats arrived here recently. */
  get heartbeating(): number {
    return this.#servers.heard;
  }

  start(): void {
    this.#isStarted = true;
    this.#loop.start();
    this.#cleanup.start();
  }

  /** Records the last heartbeats; changes no status. */
  async stop(): Promise<void> {
    await Promise.all([this.#loop.stop(), this.#cleanup.stop()]);
    if (this.#isStarted) await this.#recordLast();
    this.#isStarted = false;
  }

  /**
   * A legacy agent posted a heartbeat. Costs one map lookup; everything else is done later, for all
   * immediately.
   */
  heartbeat(serverUuid: string): void {
    if (this.#note(serverUuid) === 'urgent') this.#loop.trigger();
  }

  /**
   * A post of its agent created a server: it is `running` when this returns. @throws
   * DatabaseUnavailableError
   */
  async created(serverUuid: string): Promise<void> {
    this.#note(serverUuid);
    const made = this.#take('all').filter((one) => one.serverUuid === serverUuid);
    if (made.length > 0) await this.#record(made, this.#deps.database);
  }

  #note(serverUuid: string): 'noted' | 'urgent' | 'dropped' {
    const outcome = this.#servers.receive(serverUuid, this.#deps.healthyTimer.lastHealthyAt);
    if (outcome === 'dropped') this.stats.dropped += 1;
    return outcome;
  }

  #take(which: 'urgent' | 'all'): ReceivedHeartbeat[] {
    return this.#servers.take(which, this.#deps.clock.now());
  }

  async #round(signal: AbortSignal): Promise<void> {
    try {
      await this.#turn(signal);
    } catch (error) {
      this.stats.failedWrites += 1;
      this.#servers.readFailed();
      this.#nextRoundAt = 0;
      throw error;
    }
  }

  /**
   * Records urgent heartbeats immediately. Once per period, records all heartbeats, and then reads
   * those of all instances.
   */
  async #turn(signal: AbortSignal): Promise<void> {
    const { clock, database, times } = this.#deps;
    const isRound = clock.now() >= this.#nextRoundAt;
    await this.#recordAll(this.#take(isRound ? 'all' : 'urgent'));
    if (isRound) {
      this.#servers.readRows(await readHeartbeatRows(database, MAX_SERVERS));
      this.#nextRoundAt = clock.now() + times.legacyHeartbeatRecordMs;
    }
    if (!signal.aborted) await this.#markSilent();
  }

  /**
   * Heartbeats that cannot be recorded now, because their rows are locked, are left for the next
   * time. Returns how many. @throws DatabaseUnavailableError
   */
  async #recordAll(heartbeats: readonly ReceivedHeartbeat[]): Promise<number> {
    const left = await this.#recordings.do(heartbeats);
    this.stats.failedWrites += left.length;
    return left.length;
  }

  async #record(heartbeats: readonly ReceivedHeartbeat[], database: Queryable): Promise<undefined> {
    const { clock, cnapiUuid } = this.#deps;
    const answers = await recordHeartbeats(database, cnapiUuid, () =>
      heartbeats.map(({ serverUuid, heardAt }) => ({ serverUuid, ageMs: clock.now() - heardAt })),
    );
    this.#servers.recorded(heartbeats, answers);
    this.stats.recorded += answers.length;
    const returned = answers
      .filter(({ cameBack }) => cameBack)
      .map(({ serverUuid, epoch }) => ({ server_uuid: serverUuid, epoch, reason: 'legacy-heartbeat' }));
    this.stats.returned += returned.length;
    this.#transitions.write(returned, 'server: unknown -> running');
  }

  /**
   * Skips locked rows: their servers are running, and another instance records their next posts.
   */
  async #recordLast(): Promise<void> {
    const { log } = this.#deps;
    const message = 'legacy agents: their last heartbeats were not recorded';
    try {
      const servers = await this.#recordAll(this.#take('all'));
      if (servers > 0) log.warn({ servers }, message);
    } catch (error) {
      log.warn({ reason: messageOf(error) }, message);
    }
  }

  async #markSilent(): Promise<void> {
    const { cnapiUuid, database, mayMarkOthersUnknown } = this.#deps;
    if (!mayMarkOthersUnknown()) return;
    const due = this.#servers.due();
    for (const batch of chunksOf(due, MAX_BATCH)) {
      const applied = new Set(await recordSilences(database, cnapiUuid, batch));
      this.#servers.statusTried(batch, applied);
      this.stats.silent += applied.size;
      this.stats.heardElsewhere += batch.length - applied.size;
      const silent = [...applied].map((server_uuid) => ({ server_uuid, reason: 'legacy-silent' }));
      this.#transitions.write(silent, 'server: running -> unknown');
    }
  }
}

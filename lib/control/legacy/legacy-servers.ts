/**
 * Servers of legacy agents as one instance sees them: from the posts it receives, and from the
 * records of heartbeats that it reads of all servers (`cnapi_legacy_heartbeats`). It counts a
 * silence in its own healthy ticks (law 4), from the later of the two. So no clock is compared with
 * another's. Pure: heartbeat-monitor.ts reads, writes and ticks.
 *
 *     (not tracked) ──a post──▶ new ──recorded──▶ followed    new ──no such server──▶ (not tracked)
 *     (not tracked) ──read as `running` by its heartbeats──▶ followed
 *     followed ──quiet for silenceMs──▶ due ──status changed──▶ (not tracked)
 *                                        └──unchanged: newer information──▶ asked
 *     asked ──next read──▶ followed
 *     followed ──recorded or read as outranked──▶ heard ──quiet for lifetimeMs──▶ (not tracked)
 *
 * A post is urgent if its server is new, or was quiet for lifetimeMs (it may be `unknown` by now).
 * The others are recorded together, once per period. State that changes with each post is updated
 * in place.
 */

/** The result of recording one heartbeat. */
export interface RecordedHeartbeat {
  serverUuid: string;
  /**
   * The roster row's epoch if the server is `running` by its heartbeats; null if a session or a
   * newer change outranks them.
   */
  epoch: number | null;
  /** The id of the record. */
  lastRecord: number;
  /** This statement changed it to `running`. */
  cameBack: boolean;
}

/** A server that is `running` by its heartbeats, and the last record of them that was read. */
export interface HeartbeatRow {
  serverUuid: string;
  epoch: number;
  /** Higher than those of all its earlier records; 0 if there is none. */
  lastRecord: number;
}

interface LegacyServerLimits {
  /**
   * A post that is older than this does not show that the server is up. A server that was quiet for
   * this long may be `unknown`.
   */
  lifetimeMs: number;
  /** A server that was quiet for this long on all instances is silent. */
  silenceMs: number;
  maxServers: number;
  /** Limit for servers that the database has not confirmed; bounds posts for random uuids. */
  maxNew: number;
}

interface LegacyServer {
  readonly serverUuid: string;
  /**
   * When the newest post arrived here, or when this process was last healthy before that, on its
   * clock; -Infinity if none arrived here.
   */
  heardAt: number;
  isRecorded: boolean;
  isUrgent: boolean;
  isNew: boolean;
  /** The roster's row while the server is `running` by its heartbeats, else undefined. */
  row: HeartbeatRow | undefined;
  /** Healthy time, as counted here, at the last sign of life. */
  quietFromMs: number;
  /** A status change was tried since the last read. */
  isAsked: boolean;
}

/** A post of a legacy agent, as evidence that its server is up. */
export interface ReceivedHeartbeat {
  serverUuid: string;
  /** The `heardAt` of the `LegacyServer`; identifies the heartbeat when it is recorded. */
  heardAt: number;
}

export class LegacyServers {
  readonly #limits: LegacyServerLimits;
  readonly #servers = new Map<string, LegacyServer>();
  #healthyMs = 0;
  #new = 0;

  constructor(limits: LegacyServerLimits) {
    this.#limits = limits;
  }

  /** Servers that are tracked. */
  get size(): number {
    return this.#servers.size;
  }

  /** Servers whose posts arrived here within lifetimeMs. */
  get heard(): number {
    let heard = 0;
    for (const server of this.#servers.values()) if (isHeard(server) && !this.#isLate(server)) heard += 1;
    return heard;
  }

  /**
   * A post arrived. `heardAt` is the last time at which this process was healthy: the post may have
   * waited unread since then.
   */
  receive(serverUuid: string, heardAt: number): 'noted' | 'urgent' | 'dropped' {
    let server = this.#servers.get(serverUuid);
    if (server === undefined) {
      if (this.#new >= this.#limits.maxNew || this.#servers.size >= this.#limits.maxServers) return 'dropped';
      server = this.#add(serverUuid);
      server.isNew = true;
      server.isUrgent = true;
      this.#new += 1;
    } else if (this.#isLate(server)) {
      server.isUrgent = true;
    }
    server.heardAt = heardAt;
    server.isRecorded = false;
    server.quietFromMs = this.#healthyMs;
    return server.isUrgent ? 'urgent' : 'noted';
  }

  /**
   * Returns the heartbeats to record at `now`, only urgent ones or all. Drops posts that have
   * become too old.
   */
  take(which: 'urgent' | 'all', now: number): ReceivedHeartbeat[] {
    const due: ReceivedHeartbeat[] = [];
    for (const server of this.#servers.values()) {
      if (server.isRecorded || (which === 'urgent' && !server.isUrgent)) continue;
      if (now - server.heardAt <= this.#limits.lifetimeMs) {
        due.push({ serverUuid: server.serverUuid, heardAt: server.heardAt });
      } else {
        this.#settle(server);
        if (server.row === undefined) this.#remove(server);
      }
    }
    return due;
  }

  /** The database's answer for `batch`; a server missing from it does not exist. */
  recorded(batch: readonly ReceivedHeartbeat[], answers: readonly RecordedHeartbeat[]): void {
    const byServer = new Map(answers.map((answer) => [answer.serverUuid, answer]));
    for (const { serverUuid, heardAt } of batch) {
      const server = this.#servers.get(serverUuid);
      if (server === undefined) continue;
      const answer = byServer.get(serverUuid);
      if (answer === undefined) {
        this.#remove(server);
        continue;
      }
      const { epoch, lastRecord } = answer;
      server.row = epoch === null ? undefined : { serverUuid, epoch, lastRecord };
      server.isAsked = false;
      this.#confirm(server);
      if (server.heardAt === heardAt) this.#settle(server);
    }
  }

  /**
   * All servers now `running` by their heartbeats. A record of another instance is a sign of
   * life.
   */
  readRows(rows: readonly HeartbeatRow[]): void {
    const listed = new Set<string>();
    for (const row of rows) {
      listed.add(row.serverUuid);
      const server = this.#servers.get(row.serverUuid) ?? this.#add(row.serverUuid);
      if (server.row?.lastRecord !== row.lastRecord || server.row.epoch !== row.epoch)
        server.quietFromMs = this.#healthyMs;
      server.row = row;
      server.isAsked = false;
      this.#confirm(server);
    }
    for (const server of this.#servers.values()) {
      if (listed.has(server.serverUuid) || server.isNew) continue;
      server.row = undefined;
      if (this.#isLate(server)) this.#remove(server);
    }
  }

  /** The other instances' heartbeats are unknown: every silence starts again. */
  readFailed(): void {
    for (const server of this.#servers.values()) server.quietFromMs = this.#healthyMs;
  }

  /** A healthy tick passed; returns true if a status change is due. */
  countHealthyTick(tickMs: number): boolean {
    this.#healthyMs += tickMs;
    for (const server of this.#servers.values()) if (this.#isDue(server)) return true;
    return false;
  }

  /** The servers that were quiet for long enough, as far as this instance knows. */
  due(): HeartbeatRow[] {
    return [...this.#servers.values()].flatMap((server) => (this.#isDue(server) && server.row ? [server.row] : []));
  }

  /**
   * The status of `rows` was to be changed, and was changed for those in `applied`. The others are
   * checked again after the next read.
   */
  statusTried(rows: readonly HeartbeatRow[], applied: ReadonlySet<string>): void {
    for (const { serverUuid } of rows) {
      const server = this.#servers.get(serverUuid);
      if (server === undefined) continue;
      if (!applied.has(serverUuid)) server.isAsked = true;
      else if (server.isRecorded) this.#remove(server);
      else this.#outdate(server);
    }
  }

  #add(serverUuid: string): LegacyServer {
    const server: LegacyServer = {
      serverUuid,
      heardAt: Number.NEGATIVE_INFINITY,
      isRecorded: true,
      isUrgent: false,
      isNew: false,
      row: undefined,
      quietFromMs: this.#healthyMs,
      isAsked: false,
    };
    this.#servers.set(serverUuid, server);
    return server;
  }

  #remove(server: LegacyServer): void {
    this.#confirm(server);
    this.#servers.delete(server.serverUuid);
  }

  #confirm(server: LegacyServer): void {
    if (server.isNew) this.#new -= 1;
    server.isNew = false;
  }

  #settle(server: LegacyServer): void {
    server.isRecorded = true;
    server.isUrgent = false;
  }

  /** A post arrived while its server was being marked `unknown`: record the return immediately. */
  #outdate(server: LegacyServer): void {
    server.row = undefined;
    server.isUrgent = true;
  }

  #isLate(server: LegacyServer): boolean {
    return this.#healthyMs - server.quietFromMs >= this.#limits.lifetimeMs;
  }

  #isDue(server: LegacyServer): boolean {
    return (
      server.row !== undefined && !server.isAsked && this.#healthyMs - server.quietFromMs >= this.#limits.silenceMs
    );
  }
}

const isHeard = (server: LegacyServer): boolean => server.heardAt !== Number.NEGATIVE_INFINITY;

/**
 * Servers of old agents as one instance sees them: by the posts it hears itself, and by the counts of sightings that it
 * reads of all (`cnapi_status`). A silence is counted in this instance's healthy ticks (law 4) from the later of the two,
 * so that no clock is compared with another's. Pure: the observer reads, writes and ticks.
 *
 *     (not tracked) ──a post──▶ new ──recorded──▶ followed           new ──no such server──▶ (not tracked)
 *     (not tracked) ──read as `running` by its sightings──▶ followed
 *     followed ──quiet for silenceMs──▶ due ──verdict applied──▶ (not tracked)
 *                                        └──not applied: somebody's fresher word──▶ asked ──next read──▶ followed
 *     followed ──recorded or read as outranked──▶ heard ──quiet for lifetimeMs──▶ (not tracked)
 *
 * A post of a server that is new, or that was quiet for lifetimeMs (it may be `unknown` by now), is urgent; the others are
 * recorded together, once per period. What changes with each post changes in place.
 */
/** A post of an old agent, as evidence that its server is there. */
export interface Sighting {
  serverUuid: string;
  /** How long ago it was heard, by the instance that heard it. */
  ageMs: number;
}

/** What became of one. */
export interface RecordedSighting {
  serverUuid: string;
  /** Of the roster's row if it is `running` by its sightings; null where a session outranks them, or later word. */
  epoch: number | null;
  sightings: number;
  /** This statement made it `running`. */
  cameBack: boolean;
}

/** A server that stands `running` by its sightings, and the count of them that was seen standing. */
export interface SightedRow {
  serverUuid: string;
  epoch: number;
  sightings: number;
}

export interface SightingLimits {
  /** A post older than this proves nothing any more, and a server that was quiet for so long may be `unknown`. */
  lifetimeMs: number;
  /** Quiet for so long, on all instances, is silent. */
  silenceMs: number;
  maxServers: number;
  /** Servers that the database has not confirmed yet: whoever posts for random uuids fills this and no more. */
  maxNew: number;
}

interface OldServer {
  readonly serverUuid: string;
  /** This process's clock when the newest post came, or when it was last well before that; -Infinity when none came here. */
  heardAt: number;
  isRecorded: boolean;
  isUrgent: boolean;
  isNew: boolean;
  /** What the roster says while it is `running` by its sightings, else undefined. */
  row: SightedRow | undefined;
  /** Healthy time, as counted here, at the last sign of life. */
  quietFromMs: number;
  /** A verdict was tried since the last read. */
  isAsked: boolean;
}

/** One to be recorded, with when it was heard, by which it is recognized afterwards. */
export interface HeardSighting extends Sighting {
  heardAt: number;
}

export class Sightings {
  readonly #limits: SightingLimits;
  readonly #servers = new Map<string, OldServer>();
  #healthyMs = 0;
  #new = 0;

  constructor(limits: SightingLimits) {
    this.#limits = limits;
  }

  /** Servers that are tracked. */
  get size(): number {
    return this.#servers.size;
  }

  /** Servers heard here within lifetimeMs. */
  get heard(): number {
    let heard = 0;
    for (const server of this.#servers.values()) if (isHeard(server) && !this.#isLate(server)) heard += 1;
    return heard;
  }

  /** A post came. `heardAt` is the last moment at which this process was well: it may have waited unread since. */
  hear(serverUuid: string, heardAt: number): 'noted' | 'urgent' | 'dropped' {
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

  /** What is to be recorded at `now`, the urgent only or all; posts that became too old meanwhile are dropped. */
  take(which: 'urgent' | 'all', now: number): HeardSighting[] {
    const due: HeardSighting[] = [];
    for (const server of this.#servers.values()) {
      if (server.isRecorded || (which === 'urgent' && !server.isUrgent)) continue;
      const ageMs = now - server.heardAt;
      if (ageMs <= this.#limits.lifetimeMs) {
        due.push({ serverUuid: server.serverUuid, ageMs, heardAt: server.heardAt });
      } else {
        this.#settle(server);
        if (server.row === undefined) this.#remove(server);
      }
    }
    return due;
  }

  /** The database's answer for `batch`; a server that it leaves out does not exist. */
  recorded(batch: readonly HeardSighting[], answers: readonly RecordedSighting[]): void {
    const byServer = new Map(answers.map((answer) => [answer.serverUuid, answer]));
    for (const { serverUuid, heardAt } of batch) {
      const server = this.#servers.get(serverUuid);
      if (server === undefined) continue;
      const answer = byServer.get(serverUuid);
      if (answer === undefined) {
        this.#remove(server);
        continue;
      }
      const { epoch, sightings } = answer;
      server.row = epoch === null ? undefined : { serverUuid, epoch, sightings };
      server.isAsked = false;
      this.#confirm(server);
      if (server.heardAt === heardAt) this.#settle(server);
    }
  }

  /** All that stand `running` by their sightings now. A count that moved without us is a sign of life. */
  readRows(rows: readonly SightedRow[]): void {
    const standing = new Set<string>();
    for (const row of rows) {
      standing.add(row.serverUuid);
      const server = this.#servers.get(row.serverUuid) ?? this.#add(row.serverUuid);
      if (server.row?.sightings !== row.sightings || server.row.epoch !== row.epoch)
        server.quietFromMs = this.#healthyMs;
      server.row = row;
      server.isAsked = false;
      this.#confirm(server);
    }
    for (const server of this.#servers.values()) {
      if (standing.has(server.serverUuid) || server.isNew) continue;
      server.row = undefined;
      if (this.#isLate(server)) this.#remove(server);
    }
  }

  /** Nothing is known of the others' sightings: every silence starts anew. */
  readFailed(): void {
    for (const server of this.#servers.values()) server.quietFromMs = this.#healthyMs;
  }

  /** A healthy tick passed; true when a verdict is due. */
  countHealthyTick(tickMs: number): boolean {
    this.#healthyMs += tickMs;
    for (const server of this.#servers.values()) if (this.#isDue(server)) return true;
    return false;
  }

  /** The servers that were quiet for long enough, by what was seen here. */
  due(): SightedRow[] {
    return [...this.#servers.values()].flatMap((server) => (this.#isDue(server) && server.row ? [server.row] : []));
  }

  /** Verdicts were tried on `rows` and applied to those named; the others are looked at again after the next read. */
  judged(rows: readonly SightedRow[], applied: ReadonlySet<string>): void {
    for (const { serverUuid } of rows) {
      const server = this.#servers.get(serverUuid);
      if (server === undefined) continue;
      if (!applied.has(serverUuid)) server.isAsked = true;
      else if (server.isRecorded) this.#remove(server);
      else this.#outdate(server);
    }
  }

  #add(serverUuid: string): OldServer {
    const server: OldServer = {
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

  #remove(server: OldServer): void {
    this.#confirm(server);
    this.#servers.delete(server.serverUuid);
  }

  #confirm(server: OldServer): void {
    if (server.isNew) this.#new -= 1;
    server.isNew = false;
  }

  #settle(server: OldServer): void {
    server.isRecorded = true;
    server.isUrgent = false;
  }

  /** A post came while its verdict was written: it has to be said at once that it is back. */
  #outdate(server: OldServer): void {
    server.row = undefined;
    server.isUrgent = true;
  }

  #isLate(server: OldServer): boolean {
    return this.#healthyMs - server.quietFromMs >= this.#limits.lifetimeMs;
  }

  #isDue(server: OldServer): boolean {
    return (
      server.row !== undefined && !server.isAsked && this.#healthyMs - server.quietFromMs >= this.#limits.silenceMs
    );
  }
}

const isHeard = (server: OldServer): boolean => server.heardAt !== Number.NEGATIVE_INFINITY;

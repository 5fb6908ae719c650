/**
 * The servers as the rest of the instance sees them. REST lists, reads, updates and removes them;
 * the agent link (or REST, for legacy agents) delivers sysinfo and reports. Owns the servers' rows
 * but not their status. A write that conflicts with another is decided again on the new state, a
 * bounded number of times.
 */

import { CnapiError, DatabaseBusyError } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { BucketObject } from '../../platform/moray/bucket.ts';
import { BucketStore } from '../../platform/moray/bucket-store.ts';
import { EtagConflictError, ObjectNotFoundError } from '../../platform/moray/moray-errors.ts';
import { Batcher } from '../../platform/postgres/batches/batcher.ts';
import type { Database, Queryable } from '../../platform/postgres/database.ts';
import { type Clock, isoNow } from '../../platform/time/clock.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { canonicalJson, digestOf } from '../../protocol/json/canonical-json.ts';
import type { WhereCondition } from '../../protocol/where.ts';
import { ReportQueue } from './report-queue.ts';
import { type SelectedServers, selectServers } from './selection-store.ts';
import {
  applySysinfo,
  composeServer,
  DEFAULTS_KEY,
  INITIAL_DEFAULTS,
  type ServerDefaults,
  type ServerDocument,
  type ServerObject,
} from './server.ts';
import { serversBucket } from './server-bucket.ts';
import * as store from './server-store.ts';
import { applyUpdate, checkUpdate, type ServerChange } from './server-update.ts';

interface ServersDeps {
  database: Database;
  /** Runs the reads of digests that arriving agents wait for. Default: `database`. */
  arrivalDatabase?: Queryable;
  clock: Clock;
  log: Logger;
  /** The `datacenter` of a new server. */
  datacenter: string;
}

interface FoundServer {
  server: ServerObject;
  /** Whether the roster has the server as running, regardless of the displayed status. */
  isRunning: boolean;
}

interface ReportingSession {
  serverUuid: string;
  epoch: number | undefined;
}

interface ListQuery {
  filter: store.ServerFilter;
  partSelection: store.PartSelection;
  part: store.ListPart;
}

export class ServerNotFoundError extends CnapiError {
  constructor(serverUuid: string) {
    super('ResourceNotFound', 404, `Server ${serverUuid} not found`);
  }
}

/**
 * The sysinfo of one machine was sent for another machine's uuid; 409, as for other impossible
 * arguments.
 */
export class SysinfoMismatchError extends CnapiError {
  constructor(serverUuid: string, sysinfoUuid: unknown) {
    const message = `sysinfo.UUID ${JSON.stringify(sysinfoUuid)?.slice(0, 100)} is not the server's own, ${serverUuid}`;
    super('InvalidArgument', 409, message, { errors: [{ field: 'sysinfo', code: 'Invalid', message }] });
  }
}

/**
 * Enough for any number of conflicts between an agent's own messages; callers choose their own
 * number.
 */
const SYSINFO_RETRIES = 10;
/** How many digests one statement reads. */
const MAX_DIGESTS = 200;
/** How many documents one statement reads or writes; each has a few KB. */
const MAX_DOCUMENTS = 50;
/** How many sysinfos one statement writes; each has about 40 KB. */
const MAX_SYSINFOS = 25;

/** A report whose row is locked is tried for two seconds, as long as statements wait for a lock. */
const LOCKED_TRIES = 40;
const LOCKED_PAUSE_MS = 50;

type Stored = BucketObject<ServerDocument>;

export class Servers {
  readonly #database: Database;
  readonly #buckets: BucketStore;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #datacenter: string;
  readonly #reports: ReportQueue;
  /** Digests of sysinfo; each agent that connects reads one. */
  readonly #digests: Batcher<string, string>;
  /** Sysinfo to store, after the server's document is read or created. Each new agent sends one. */
  readonly #sysinfos: Batcher<store.KeptSysinfo, true>;
  readonly #documents: Batcher<string, Stored>;
  readonly #creations: Batcher<{ serverUuid: string; document: ServerDocument }, true>;
  #defaultsAsked: Promise<ServerDefaults> | undefined;

  constructor({ database, arrivalDatabase = database, clock, log, datacenter }: ServersDeps) {
    this.#database = database;
    this.#buckets = new BucketStore({ database });
    this.#clock = clock;
    this.#log = log;
    this.#datacenter = datacenter;
    this.#reports = new ReportQueue({ database, clock, log });
    const shared = { clock, log, database };
    this.#digests = new Batcher({
      ...shared,
      database: arrivalDatabase,
      what: 'reading of sysinfo digests',
      keyOf: (serverUuid) => serverUuid,
      maxBatch: MAX_DIGESTS,
      ask: (serverUuids, connection) => store.readDigests(connection, serverUuids),
    });
    this.#sysinfos = new Batcher({
      ...shared,
      what: 'storing of sysinfo',
      keyOf: ({ serverUuid }) => serverUuid,
      maxBatch: MAX_SYSINFOS,
      ask: async (kept, connection) =>
        new Map((await store.storeSysinfos(connection, kept)).map((serverUuid) => [serverUuid, true])),
    });
    this.#documents = new Batcher({
      ...shared,
      what: 'reading of server documents',
      keyOf: (serverUuid) => serverUuid,
      maxBatch: MAX_DOCUMENTS,
      ask: (serverUuids, connection) => this.#buckets.getMany<ServerDocument>(serversBucket, serverUuids, connection),
    });
    this.#creations = new Batcher({
      ...shared,
      what: 'creation of servers',
      keyOf: ({ serverUuid }) => serverUuid,
      maxBatch: MAX_DOCUMENTS,
      ask: async (created, connection) => {
        const documents = new Map(created.map(({ serverUuid, document }) => [serverUuid, document]));
        const etags = await this.#buckets.createMany(serversBucket, documents, connection);
        return new Map([...etags.keys()].map((serverUuid) => [serverUuid, true]));
      },
    });
  }

  /**
   * Creates the bucket, and the defaults of new servers if they are missing. Call it after the
   * migrations.
   */
  async start(): Promise<void> {
    await this.#buckets.ensureBucket(serversBucket);
    const isNew = { etag: null };
    await this.#buckets.put(serversBucket, DEFAULTS_KEY, { ...INITIAL_DEFAULTS }, isNew).catch(unlessConflict);
  }

  /** Drops the queued reports. */
  stop(): Promise<void> {
    return this.#reports.stop();
  }

  /** The number of servers by status. */
  counts(): Promise<Record<string, number>> {
    return store.countServers(this.#database);
  }

  /** Returns a page of servers in order of uuid; `next` is where the next page begins. */
  async list({
    filter,
    partSelection,
    part,
  }: ListQuery): Promise<{ servers: ServerObject[]; next: string | undefined }> {
    const { servers, next } = await store.listServers(this.#database, filter, partSelection, part);
    return { servers: servers.map(composeServer), next };
  }

  /** The statuses of those of these servers that exist, by uuid. */
  statuses(serverUuids: readonly string[]): Promise<Map<string, store.ServerStatusRow>> {
    return store.readServerStatuses(this.#database, serverUuids);
  }

  /** Whether those of these servers that exist run, and since when; by uuid. */
  async boots(serverUuids: readonly string[]): Promise<ReadonlyMap<string, store.ServerBoot>> {
    return serverUuids.length === 0 ? new Map() : store.readBoots(this.#database, serverUuids);
  }

  /** The hostnames of those of these servers that exist, by uuid. */
  hostnames(serverUuids: readonly string[]): Promise<Map<string, string>> {
    return store.readHostnames(this.#database, serverUuids);
  }

  /** The servers that meet all of these conditions, at most `most`. */
  select(conditions: readonly WhereCondition[], limit: number): Promise<SelectedServers> {
    return selectServers(this.#database, conditions, limit);
  }

  /** The server, whole by default, or the defaults under the name `default`. */
  async get(
    serverUuid: string,
    partSelection: store.PartSelection = store.ALL_PARTS,
  ): Promise<FoundServer | undefined> {
    if (serverUuid === DEFAULTS_KEY) return this.#getDefaults();
    const parts = await store.readServer(this.#database, serverUuid, partSelection);
    return parts === undefined ? undefined : { server: composeServer(parts), isRunning: parts.status === 'running' };
  }

  /**
   * Applies an update; retries a conflict with another write `etagRetries` times. `admit`: as in
   * `recordSysinfo`.
   * @throws ServerNotFoundError, InvalidServerUpdateError, EtagConflictError
   */
  async update(serverUuid: string, update: ServerChange, etagRetries: number, admit?: () => Promise<void>) {
    checkUpdate(update);
    const epoch = update.transitional_status
      ? ((await store.readRosterRow(this.#database, serverUuid))?.epoch ?? null)
      : null;
    await this.#write(serverUuid, etagRetries, async (before) => {
      if (before === undefined) throw new ServerNotFoundError(serverUuid);
      await admit?.();
      return applyUpdate(before, update, epoch);
    });
  }

  /** Marks it `rebooting`, unless it has booted since `lastBoot`. @throws ServerNotFoundError */
  async markRebooting(serverUuid: string, lastBoot: unknown): Promise<void> {
    const epoch = (await store.readRosterRow(this.#database, serverUuid))?.epoch ?? null;
    await this.#write(serverUuid, SYSINFO_RETRIES, (before) => {
      if (before === undefined) throw new ServerNotFoundError(serverUuid);
      const hasBooted = (before.last_boot ?? null) !== lastBoot;
      return hasBooted ? before : applyUpdate(before, { transitional_status: 'rebooting' }, epoch);
    });
  }

  /**
   * Stores a server's sysinfo and the fields derived from it; creates the server if it does not
   * exist. `digest` is the agent's own; from it the agent knows whether to send the sysinfo again.
   * Returns true when it created the server. Calls `admit` with the stored document before each
   * write; that function may throw. If another write comes between, it is called again. `keep`
   * stores the sysinfo itself.
   * @throws SysinfoMismatchError
   */
  async recordSysinfo(
    serverUuid: string,
    sysinfo: JsonObject,
    digest = digestOf(sysinfo),
    admit: (before: ServerDocument | undefined) => void | Promise<void> = () => undefined,
    keep: (kept: store.KeptSysinfo) => Promise<unknown> = (kept) => this.#sysinfos.ask(kept),
  ): Promise<boolean> {
    const named = sysinfo.UUID;
    if (typeof named !== 'string' || named.toLowerCase() !== serverUuid)
      throw new SysinfoMismatchError(serverUuid, named);
    const context = { defaults: await this.#defaults(), datacenter: this.#datacenter, observedAt: isoNow(this.#clock) };
    const isNew = await this.#write(serverUuid, SYSINFO_RETRIES, async (before) => {
      await admit(before);
      return applySysinfo(before, serverUuid, sysinfo, context);
    });
    // Last, so that a digest is stored only for a sysinfo that was applied.
    await keep({ serverUuid, sysinfo, digest });
    return isNew;
  }

  /**
   * Stores a legacy agent's report of VMs, memory and disk, unless its VMs change too often: then
   * one of its next reports is stored. False when the server does not exist.
   * @throws DatabaseBusyError while somebody else changes the server's report; TooManyVmsError
   */
  async recordReport(serverUuid: string, status: JsonObject): Promise<boolean> {
    const report = { serverUuid, epoch: undefined, report: this.#reports.parse(serverUuid, status) };
    if (this.#reports.admit(serverUuid, report.report) === 'held') return true;
    for (let attempt = 1; attempt <= LOCKED_TRIES; attempt++) {
      const outcome = (await store.storeReports(this.#database, [report])).get(serverUuid);
      if (outcome !== 'locked') return outcome !== undefined;
      await this.#clock.sleep(LOCKED_PAUSE_MS);
    }
    throw new DatabaseBusyError('locked');
  }

  /** Returns these keys of the stored sysinfo; undefined when there is none. */
  sysinfoParts(serverUuid: string, keys: readonly string[]): Promise<JsonObject | undefined> {
    return store.readSysinfoParts(this.#database, serverUuid, keys);
  }

  /**
   * Stores a report later, in a batch. A report that cannot be stored is dropped. `epoch` is that
   * of the session that sent it.
   */
  queueReport({ serverUuid, epoch }: ReportingSession, status: JsonObject, size: number): void {
    this.#reports.addStatus({ serverUuid, epoch }, status, size);
  }

  /** Reports that were dropped, refused or delayed. */
  get reportCounts(): Pick<ReportQueue, 'dropped' | 'refused' | 'delayed'> {
    return this.#reports;
  }

  /**
   * The digest of the stored sysinfo; undefined when there is none and the agent should send it.
   */
  sysinfoDigest(serverUuid: string): Promise<string | undefined> {
    return this.#digests.ask(serverUuid);
  }

  /**
   * Removes a server and its authority. `cnapiUuid`: the instance that removes it. The caller
   * closes the server's session.
   * @throws ServerNotFoundError
   */
  async remove(serverUuid: string, cnapiUuid: string): Promise<store.RemovedServer> {
    const removed = await store.removeServer(this.#database, cnapiUuid, serverUuid);
    if (removed === undefined) throw new ServerNotFoundError(serverUuid);
    this.#log.info({ server_uuid: serverUuid }, 'server: removed');
    return removed;
  }

  /**
   * Removes the defaults of new servers.
   * @throws ServerNotFoundError
   */
  async removeDefaults(): Promise<void> {
    try {
      await this.#buckets.delete(serversBucket, DEFAULTS_KEY);
    } catch (error) {
      if (error instanceof ObjectNotFoundError) throw new ServerNotFoundError(DEFAULTS_KEY);
      throw error;
    }
    this.#log.info({}, 'server: the defaults of new servers were removed');
  }

  /**
   * Reads, decides, and writes if that changes anything; repeats while another write conflicts.
   * Reads and creations share statements with those of other servers. True when it created the
   * server.
   */
  async #write(
    serverUuid: string,
    retries: number,
    decide: (before: ServerDocument | undefined) => ServerDocument | Promise<ServerDocument>,
  ): Promise<boolean> {
    for (let attempt = 0; ; attempt++) {
      const stored = await this.#documents.ask(serverUuid);
      const after = await decide(stored?.value);
      if (stored !== undefined && canonicalJson(stored.value) === canonicalJson(after)) return false;
      try {
        if (stored === undefined) await this.#create(serverUuid, after);
        else await this.#buckets.put(serversBucket, serverUuid, after, { etag: stored.etag });
        return stored === undefined;
      } catch (error) {
        if (!(error instanceof EtagConflictError) || attempt >= retries) throw error;
      }
    }
  }

  /** @throws EtagConflictError when the server exists */
  async #create(serverUuid: string, document: ServerDocument): Promise<void> {
    const isCreated = await this.#creations.ask({ serverUuid, document });
    if (!isCreated) {
      const existing = await this.#documents.ask(serverUuid);
      throw new EtagConflictError(serversBucket.name, serverUuid, null, existing?.etag ?? null);
    }
    this.#log.info({ server_uuid: serverUuid, hostname: document.hostname }, 'server: created');
  }

  /** Agents that connect at the same time share one read. */
  #defaults(): Promise<ServerDefaults> {
    this.#defaultsAsked ??= this.#readDefaults().finally(() => {
      this.#defaultsAsked = undefined;
    });
    return this.#defaultsAsked;
  }

  async #readDefaults(): Promise<ServerDefaults> {
    const { boot_modules, boot_params, boot_platform, default_console, kernel_flags, serial } = {
      ...INITIAL_DEFAULTS,
      ...(await this.#documents.ask(DEFAULTS_KEY))?.value,
    };
    return { boot_modules, boot_params, boot_platform, default_console, kernel_flags, serial };
  }

  /** Bypasses `#documents`, which reads a server once at a time: this lock serves all callers. */
  async #getDefaults(): Promise<FoundServer | undefined> {
    const stored = (await this.#buckets.getMany<ServerDocument>(serversBucket, [DEFAULTS_KEY])).get(DEFAULTS_KEY);
    if (stored === undefined) return undefined;
    return { server: { ...stored.value, uuid: DEFAULTS_KEY, status: 'unknown' }, isRunning: false };
  }
}

function unlessConflict(error: unknown): void {
  if (!(error instanceof EtagConflictError)) throw error;
}

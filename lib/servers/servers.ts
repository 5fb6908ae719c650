/**
 * The servers, as the rest of the instance sees them: REST lists, reads, updates and removes; the agent link (and, of
 * older agents, REST) hands in sysinfo and reports. Owns the servers' rows and nothing of their status. A write that
 * meets another one is decided anew on what is there then, a bounded number of times.
 */
import { CnapiError } from '../errors.ts';
import type { Logger } from '../log.ts';
import { Batcher } from '../moray/batcher.ts';
import type { BucketObject } from '../moray/bucket.ts';
import { BucketStore } from '../moray/bucket-store.ts';
import type { Database } from '../moray/database.ts';
import { EtagConflictError, ObjectNotFoundError } from '../moray/moray-errors.ts';
import { type Clock, isoNow } from '../ports/clock.ts';
import { canonicalJson, digestOf } from '../wire/canonical-json.ts';
import { ReportQueue } from './report-queue.ts';
import {
  applySysinfo,
  composeServer,
  DEFAULTS_KEY,
  INITIAL_DEFAULTS,
  type Json,
  parseReport,
  type ServerDefaults,
  type ServerDocument,
  type ServerObject,
} from './server.ts';
import { serversBucket } from './server-schema.ts';
import * as store from './server-store.ts';
import { applyUpdate, checkUpdate, type ServerUpdate } from './server-update.ts';

export interface ServersDeps {
  database: Database;
  clock: Clock;
  log: Logger;
  /** What a new server's `datacenter` is. */
  datacenter: string;
}

export interface FoundServer {
  server: ServerObject;
  /** By the roster, whatever is displayed. */
  isRunning: boolean;
}

export interface ListQuery {
  filter: store.ServerFilter;
  breadth: store.Breadth;
  page: store.Page;
}

export class ServerNotFoundError extends CnapiError {
  constructor(serverUuid: string) {
    super('ResourceNotFound', 404, `Server ${serverUuid} not found`);
  }
}

/** A machine's sysinfo came under another machine's name; 409, as other impossible arguments. */
export class SysinfoMismatchError extends CnapiError {
  constructor(serverUuid: string, sysinfoUuid: unknown) {
    const message = `sysinfo.UUID ${JSON.stringify(sysinfoUuid)?.slice(0, 100)} is not the server's own, ${serverUuid}`;
    super('InvalidArgument', 409, message, { errors: [{ field: 'sysinfo', code: 'Invalid', message }] });
  }
}

/** Enough for any pile-up of an agent's own messages; a caller says how often for itself. */
const SYSINFO_RETRIES = 10;
/** Read at once. */
const MAX_DIGESTS = 200;

export class Servers {
  readonly #database: Database;
  readonly #buckets: BucketStore;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #datacenter: string;
  readonly #reports: ReportQueue;
  /** Each agent that comes asks for one. */
  readonly #digests: Batcher<string, string>;

  constructor({ database, clock, log, datacenter }: ServersDeps) {
    this.#database = database;
    this.#buckets = new BucketStore({ database });
    this.#clock = clock;
    this.#log = log;
    this.#datacenter = datacenter;
    this.#reports = new ReportQueue({ database, clock, log });
    this.#digests = new Batcher({
      clock,
      keyOf: (serverUuid) => serverUuid,
      maxBatch: MAX_DIGESTS,
      ask: (serverUuids) => store.readDigests(database, serverUuids),
    });
  }

  /** Makes the bucket, and the defaults of new servers where they are missing. After the migrations. */
  async start(): Promise<void> {
    await this.#buckets.ensureBucket(serversBucket);
    const isNew = { etag: null };
    await this.#buckets.put(serversBucket, DEFAULTS_KEY, { ...INITIAL_DEFAULTS }, isNew).catch(unlessConflict);
  }

  /** Reports that wait are let go. */
  stop(): Promise<void> {
    return this.#reports.stop();
  }

  /** In order of uuid. */
  async list({ filter, breadth, page }: ListQuery): Promise<ServerObject[]> {
    return (await store.listServers(this.#database, filter, breadth, page)).map(composeServer);
  }

  /** The server, whole if not asked otherwise, or the defaults under the name `default`. */
  async get(serverUuid: string, breadth: store.Breadth = store.WHOLE): Promise<FoundServer | undefined> {
    if (serverUuid === DEFAULTS_KEY) return this.#getDefaults();
    const parts = await store.readServer(this.#database, serverUuid, breadth);
    return parts === undefined ? undefined : { server: composeServer(parts), isRunning: parts.status === 'running' };
  }

  /**
   * Carries out a caller's update; a conflict with another write is retried `etagRetries` times.
   * @throws ServerNotFoundError, InvalidServerUpdateError, EtagConflictError
   */
  async update(serverUuid: string, update: ServerUpdate, etagRetries: number): Promise<void> {
    checkUpdate(update);
    const epoch = update.transitional_status
      ? ((await store.readStanding(this.#database, serverUuid))?.epoch ?? null)
      : null;
    await this.#write(serverUuid, etagRetries, (before) => {
      if (before === undefined) throw new ServerNotFoundError(serverUuid);
      return applyUpdate(before, update, epoch);
    });
  }

  /**
   * Keeps a server's sysinfo and what follows from it; the server is created when it is not there. `digest` is the
   * agent's own, by which it knows whether to send it again. True when the server was created.
   * @throws SysinfoMismatchError
   */
  async recordSysinfo(serverUuid: string, sysinfo: Json, digest = digestOf(sysinfo)): Promise<boolean> {
    const named = sysinfo.UUID;
    if (typeof named !== 'string' || named.toLowerCase() !== serverUuid)
      throw new SysinfoMismatchError(serverUuid, named);
    const context = { defaults: await this.#defaults(), datacenter: this.#datacenter, observedAt: isoNow(this.#clock) };
    const isNew = await this.#write(serverUuid, SYSINFO_RETRIES, (before) =>
      applySysinfo(before, serverUuid, sysinfo, context),
    );
    // Last, so that a digest is known only of a sysinfo that was carried out.
    await store.storeSysinfo(this.#database, serverUuid, sysinfo, digest);
    return isNew;
  }

  /** Keeps what an agent reports of VMs, memory and disk. False when there is no such server. */
  async recordReport(serverUuid: string, status: Json): Promise<boolean> {
    return (await store.storeReports(this.#database, [[serverUuid, parseReport(status)]])).length > 0;
  }

  /** These keys of the sysinfo that is kept; undefined when there is none. */
  sysinfoParts(serverUuid: string, keys: readonly string[]): Promise<Json | undefined> {
    return store.readSysinfoParts(this.#database, serverUuid, keys);
  }

  /** As `recordReport`, soon and together with others; what cannot be kept is let go. */
  queueReport(serverUuid: string, status: Json): void {
    this.#reports.add(serverUuid, parseReport(status));
  }

  /** The digest of the sysinfo that is kept; undefined when there is none, and the agent should send it. */
  sysinfoDigest(serverUuid: string): Promise<string | undefined> {
    return this.#digests.ask(serverUuid);
  }

  /** Forgets a server, or the defaults under the name `default`. @throws ServerNotFoundError */
  async remove(key: string): Promise<void> {
    if (!(await store.deleteServer(this.#database, key))) throw new ServerNotFoundError(key);
    this.#log.info({ server_uuid: key }, 'server removed');
  }

  /** Reads, decides, writes if that changes anything; again while another write comes between. True when it was new. */
  async #write(
    serverUuid: string,
    retries: number,
    decide: (before: ServerDocument | undefined) => ServerDocument,
  ): Promise<boolean> {
    for (let attempt = 0; ; attempt++) {
      const stored = await this.#stored(serverUuid);
      const after = decide(stored?.value);
      if (stored !== undefined && canonicalJson(stored.value) === canonicalJson(after)) return false;
      try {
        await this.#buckets.put(serversBucket, serverUuid, after, { etag: stored?.etag ?? null });
        if (stored === undefined)
          this.#log.info({ server_uuid: serverUuid, hostname: after.hostname }, 'server created');
        return stored === undefined;
      } catch (error) {
        if (!(error instanceof EtagConflictError) || attempt >= retries) throw error;
      }
    }
  }

  async #stored(key: string): Promise<BucketObject<ServerDocument> | undefined> {
    try {
      return await this.#buckets.get<ServerDocument>(serversBucket, key);
    } catch (error) {
      if (error instanceof ObjectNotFoundError) return undefined;
      throw error;
    }
  }

  async #defaults(): Promise<ServerDefaults> {
    const { boot_modules, boot_params, boot_platform, default_console, kernel_flags, serial } = {
      ...INITIAL_DEFAULTS,
      ...(await this.#stored(DEFAULTS_KEY))?.value,
    };
    return { boot_modules, boot_params, boot_platform, default_console, kernel_flags, serial };
  }

  async #getDefaults(): Promise<FoundServer | undefined> {
    const stored = await this.#stored(DEFAULTS_KEY);
    if (stored === undefined) return undefined;
    return { server: { ...stored.value, uuid: DEFAULTS_KEY, status: 'unknown' }, isRunning: false };
  }
}

function unlessConflict(error: unknown): void {
  if (!(error instanceof EtagConflictError)) throw error;
}

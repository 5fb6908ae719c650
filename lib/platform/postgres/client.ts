/**
 * One connection to the database host that takes writes. It leaves a server that reports, in its
 * greeting or later, that it is read-only (a standby, or a primary set so). Created by the pool
 * (`pool.ts`) and by the bus over LISTEN/NOTIFY.
 */
import type { Socket } from 'node:net';
import pg from 'pg';
import { sqlStateOf } from './database.ts';
import type { DatabaseHosts, Droppable, Host } from './hosts.ts';
import type { Traffic } from './unavailable.ts';

/**
 * Postgres 14 and newer report these at the start and at each change. A pooler repeats what its
 * first server once reported.
 */
const READ_ONLY_PARAMETERS = ['in_hot_standby', 'default_transaction_read_only'];

export const TIMELINE_QUERY = `select substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) as timeline`;
/** SQLSTATE of a standby that is asked for its timeline. */
export const IN_RECOVERY = '55000';
/** SQLSTATEs for: not permitted, no such function, not supported. */
export const TIMELINE_NOT_READABLE = ['42501', '42883', '0A000'];

/** The driver supports it, but its types lack it. */
type Timed = pg.QueryConfig & { query_timeout: number };

/** The SQLSTATE that the server itself gives when asked to write. */
class ReadOnlyError extends Error {
  readonly code = '25006';

  constructor(host: Host) {
    super(`${host.name} is read-only: a standby, or a primary that is set so`);
  }
}

interface ClientOptions extends pg.ClientConfig {
  /** Time to open a connection, divided among the hosts. */
  connectionTimeoutMillis: number;
}

type Connected = (error: Error | null, client?: pg.Client) => void;

/** Connects to the host that is next when the client is created. */
export class DatabaseClient extends pg.Client implements Droppable {
  readonly databaseHost: Host;
  readonly #hosts: DatabaseHosts;
  readonly #timeoutMs: number;
  /** Below TLS, if there is TLS. */
  readonly #socket: Socket;
  #isOpen = false;

  constructor(hosts: DatabaseHosts, options: ClientOptions, { pooled = false } = {}) {
    const host = hosts.next;
    const connectionTimeoutMillis = Math.ceil(options.connectionTimeoutMillis / hosts.count);
    super({ ...options, connectionString: host.url, connectionTimeoutMillis });
    this.databaseHost = host;
    this.#socket = this.connection.stream as Socket;
    this.#hosts = hosts;
    this.#timeoutMs = connectionTimeoutMillis;
    const noteFailure = () => this.#isOpen || hosts.failed(host);
    // Added before the driver's own listeners, whose callers may immediately make the next
    // connection.
    for (const event of ['error', 'errorMessage']) this.connection.on(event, noteFailure);
    this.connection.once('end', () => {
      noteFailure();
      hosts.closed(this);
    });
    // While the timeline is read nobody else listens for errors.
    this.on('error', () => undefined);
    if (!pooled) this.connection.on('parameterStatus', (status: ParameterStatus) => this.#leaveIfReadOnly(status));
  }

  override connect(): Promise<pg.Client>;
  override connect(callback: Connected): void;
  override connect(callback?: Connected): Promise<pg.Client> | undefined {
    const opened = super.connect().then(() => this.#open());
    if (callback === undefined) return opened;
    opened.then(
      (client) => callback(null, client),
      (error: Error) => callback(error),
    );
    return undefined;
  }

  async #open(): Promise<pg.Client> {
    try {
      const timeline = this.#hosts.count > 1 ? await this.#timeline() : undefined;
      this.#hosts.opened(this, timeline);
      this.#isOpen = true;
      return this;
    } catch (error) {
      this.#hosts.failed(this.databaseHost);
      this.connection.stream.destroy();
      throw error;
    }
  }

  /** Each promotion begins a new timeline. Undefined if the database does not tell it. */
  async #timeline(): Promise<number | undefined> {
    try {
      const { rows } = await this.query<{ timeline: string }>({
        text: TIMELINE_QUERY,
        query_timeout: this.#timeoutMs,
      } as Timed);
      return Number.parseInt(rows[0]?.timeline ?? '', 16);
    } catch (error) {
      const state = sqlStateOf(error);
      if (state === IN_RECOVERY) throw new ReadOnlyError(this.databaseHost);
      if (TIMELINE_NOT_READABLE.includes(state ?? '')) return undefined;
      throw error;
    }
  }

  get traffic(): Traffic {
    const { bytesRead, bytesWritten } = this.connection.stream as Socket;
    return { read: bytesRead, written: bytesWritten };
  }

  /**
   * Ends the connection with a reset, so what it has queued is not sent any more. Otherwise an
   * abandoned statement would take the bandwidth of its successors. Then release it immediately.
   */
  abandon(): void {
    const isTcp = this.#socket.remoteFamily !== undefined;
    if (isTcp) this.#socket.resetAndDestroy();
    else this.#socket.destroy();
  }

  drop(cause: Error): void {
    this.connection.stream.destroy(cause);
  }

  #leaveIfReadOnly({ parameterName, parameterValue }: ParameterStatus): void {
    if (parameterValue !== 'on' || !READ_ONLY_PARAMETERS.includes(parameterName)) return;
    // Otherwise a readyForQuery of the same packet would arrive before the error, and the
    // connection would count as usable.
    this.connection.removeAllListeners('readyForQuery');
    this.drop(new ReadOnlyError(this.databaseHost));
  }
}

interface ParameterStatus {
  parameterName: string;
  parameterValue: string;
}

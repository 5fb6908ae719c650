/**
 * One connection to whichever host of the database takes writes. A server that says while it greets, or later, that it is
 * read-only (a standby; a primary set so) is left at once. Made by the pool (`pool.ts`) and by the bus over LISTEN/NOTIFY.
 */
import pg from 'pg';
import type { DatabaseHosts, Droppable, Host } from './hosts.ts';

/** Reported by Postgres 14 and newer at the start and at each change. A pooler repeats what its first server once said. */
const READ_ONLY_PARAMETERS = ['in_hot_standby', 'default_transaction_read_only'];

/** As the server says it itself when it is asked to write. */
class ReadOnlyError extends Error {
  readonly code = '25006';

  constructor(host: Host) {
    super(`${host.name} is read-only: a standby, or a primary that is set so`);
  }
}

export interface ClientOptions extends pg.ClientConfig {
  /** To open a connection, whichever host that is; shared among them. */
  connectionTimeoutMillis: number;
}

/** It goes to the host that is next when it is made. */
export class DatabaseClient extends pg.Client implements Droppable {
  readonly databaseHost: Host;

  constructor(hosts: DatabaseHosts, options: ClientOptions, { pooled = false } = {}) {
    const host = hosts.next;
    const connectionTimeoutMillis = Math.ceil(options.connectionTimeoutMillis / hosts.count);
    super({ ...options, connectionString: host.url, connectionTimeoutMillis });
    this.databaseHost = host;
    let isOpen = false;
    const noteFailure = () => isOpen || hosts.failed(host);
    // Before the driver's own listeners, whose callers may at once make the next connection.
    for (const event of ['error', 'errorMessage']) this.connection.on(event, noteFailure);
    this.connection.once('readyForQuery', () => {
      isOpen = true;
      hosts.opened(this);
    });
    this.connection.once('end', () => {
      noteFailure();
      hosts.closed(this);
    });
    if (!pooled) this.connection.on('parameterStatus', (status: ParameterStatus) => this.#leaveIfReadOnly(status));
  }

  drop(cause: Error): void {
    this.connection.stream.destroy(cause);
  }

  #leaveIfReadOnly({ parameterName, parameterValue }: ParameterStatus): void {
    if (parameterValue !== 'on' || !READ_ONLY_PARAMETERS.includes(parameterName)) return;
    // What else came in the same packet would be heard before the error, and the connection be taken for a good one.
    this.connection.removeAllListeners('readyForQuery');
    this.drop(new ReadOnlyError(this.databaseHost));
  }
}

interface ParameterStatus {
  parameterName: string;
  parameterValue: string;
}

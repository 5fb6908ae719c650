/**
 * The hosts of one database, of which one takes writes. Decides which host to try next, and ends
 * connections to all others. Shared by all connections of an instance, so what one learns applies
 * to all. `client.ts` makes the connections.
 *
 *     at host n ──it refuses, is silent or read-only──▶ at host n + 1 (the first after the last)
 *     at host n ──a connection to it opens──▶ in use: connections to other hosts are destroyed
 *
 * A former primary that was not stopped also takes writes. Its timeline is lower than that of the
 * promoted host. Once this process has seen the higher timeline, it uses no host with a lower one.
 */
import type { Logger } from '../log.ts';
import { hostUrls } from './database-url.ts';

export interface Host {
  url: string;
  /** HOST:PORT, for messages. */
  name: string;
}

/** A connection, as this file uses it. */
export interface Droppable {
  readonly databaseHost: Host;
  drop(cause: Error): void;
}

/** The connection's host is no longer used. A server that shuts down gives the same code, 57P01. */
class MovedError extends Error {
  readonly code = '57P01';

  constructor(from: Host, to: Host) {
    super(`the database moved from ${from.name} to ${to.name}`);
  }
}

/** The code 57P01 causes a try at another host. */
class FormerPrimaryError extends Error {
  readonly code = '57P01';

  constructor(host: Host, timeline: number, seen: number) {
    super(`${host.name} is a former primary: its timeline is ${timeline}, and ${seen} has been seen`);
  }
}

class LateError extends Error {
  readonly code = '57P01';

  constructor(host: Host) {
    super(`${host.name} was given up while this connection was made`);
  }
}

export class DatabaseHosts {
  readonly #hosts: readonly Host[];
  readonly #log: Logger;
  readonly #open = new Set<Droppable>();
  #next = 0;
  #inUse: Host | undefined;
  /** The highest timeline seen. */
  #timeline = 0;
  #complainedOf: Host | undefined;

  /** @throws TypeError when the URL is not one */
  constructor(url: string, log: Logger) {
    this.#hosts = hostUrls(url).map((each) => ({ url: each, name: nameOf(each) }));
    this.#log = log;
  }

  get count(): number {
    return this.#hosts.length;
  }

  /** The host for the next connection. */
  get next(): Host {
    return this.#hosts[this.#next] as Host; // `#next` is always below the number of hosts
  }

  /** A connection to the host could not be opened, or only for reading. */
  failed(host: Host): void {
    if (host === this.next) this.#next = (this.#next + 1) % this.#hosts.length;
  }

  /** @throws Error with code 57P01 when the connection's host must not be used */
  opened(connection: Droppable, timeline: number | undefined): void {
    const { databaseHost } = connection;
    if (timeline !== undefined) this.#refuseFormer(databaseHost, timeline);
    if (databaseHost !== this.next) throw new LateError(databaseHost);
    this.#open.add(connection);
    const before = this.#inUse;
    this.#inUse = databaseHost;
    if (before !== undefined && before !== databaseHost) this.#leave(before, databaseHost);
  }

  closed(connection: Droppable): void {
    this.#open.delete(connection);
  }

  #refuseFormer(host: Host, timeline: number): void {
    if (timeline >= this.#timeline) {
      this.#timeline = timeline;
      return;
    }
    const error = new FormerPrimaryError(host, timeline, this.#timeline);
    if (this.#complainedOf !== host)
      this.#log.error({ host: host.name, timeline, seen: this.#timeline }, `database: ${error.message}; stop it`);
    this.#complainedOf = host;
    throw error;
  }

  #leave(from: Host, to: Host): void {
    this.#log.warn({ from: from.name, to: to.name }, 'database: primary changed');
    const left = [...this.#open].filter(({ databaseHost }) => databaseHost !== to);
    for (const connection of left) connection.drop(new MovedError(connection.databaseHost, to));
  }
}

function nameOf(url: string): string {
  const authority = /^[a-z]+:\/\/([^/?#]*)/.exec(url)?.[1] ?? '';
  return authority.slice(authority.lastIndexOf('@') + 1);
}

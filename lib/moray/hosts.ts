/**
 * The hosts of one database, of which one takes writes: which to ask next, and that nothing stays behind on another. Shared by
 * all connections of an instance, so that what one learns the others go by. Connections are `client.ts`'s.
 *
 *     at host n ──it refuses, is silent, or is read-only──▶ at host n + 1 (the first after the last)
 *     at host n ──a connection to it opens──▶ in use: connections to any other host are destroyed
 *
 * A former primary that nobody has stopped takes writes as well. It is told by its timeline, which is below that of the one
 * that was promoted: once this process has seen the higher one, it goes to no lower one.
 */
import type { Logger } from '../log.ts';
import { hostUrls } from './database-url.ts';

export interface Host {
  url: string;
  /** HOST:PORT, for people. */
  name: string;
}

/** What a connection is, here. */
export interface Droppable {
  readonly databaseHost: Host;
  drop(cause: Error): void;
}

/** The former host no longer answers; 57P01 is what a server says that is shut down in order. */
class MovedError extends Error {
  readonly code = '57P01';

  constructor(from: Host, to: Host) {
    super(`the database moved from ${from.name} to ${to.name}`);
  }
}

/** 57P01, so that another host is tried. */
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
  /** The highest that was seen. */
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

  /** For the next connection. */
  get next(): Host {
    return this.#hosts[this.#next] as Host; // there is at least one, and `#next` is below their number
  }

  /** A connection could not be opened there, or not for writing. */
  failed(host: Host): void {
    if (host === this.next) this.#next = (this.#next + 1) % this.#hosts.length;
  }

  /** @throws when it is of a host that must not be gone to */
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
    this.#log.warn({ from: from.name, to: to.name }, 'database: the host that takes writes is another one now');
    const left = [...this.#open].filter(({ databaseHost }) => databaseHost !== to);
    for (const connection of left) connection.drop(new MovedError(connection.databaseHost, to));
  }
}

function nameOf(url: string): string {
  const authority = /^[a-z]+:\/\/([^/?#]*)/.exec(url)?.[1] ?? '';
  return authority.slice(authority.lastIndexOf('@') + 1);
}

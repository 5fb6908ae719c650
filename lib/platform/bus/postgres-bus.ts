/**
 * The bus without Redis: LISTEN on one dedicated connection, pg_notify in small batches on another.
 * Neither belongs to the pool: a listening connection must stay open, and a hint must not wait
 * behind the pool's work. A channel is PREFIX + topic if that fits into Postgres's 63 bytes,
 * otherwise PREFIX + a digest of the topic. Channels are separate for each database.
 */
import { createHash } from 'node:crypto';
import { Socket } from 'node:net';
import pg from 'pg';
import type { Logger } from '../log.ts';
import { DatabaseClient } from '../postgres/client.ts';
import { DatabaseHosts } from '../postgres/hosts.ts';
import type { Random } from '../random.ts';
import type { Clock } from '../time/clock.ts';
import { type ConnectionEvents, connector, type PendingConnection } from './bus-connection.ts';
import { ConnectionBus } from './connection-bus.ts';

const PREFIX = 'cnapi:';
const MAX_CHANNEL_BYTES = 63;
const MAX_BATCH = 100;
/** Shorter than OPEN_TIMEOUT_MS of the bus, so that one of several hosts cannot use all of it. */
const CONNECT_TIMEOUT_MS = 2_500;

interface PostgresBusDeps {
  /**
   * postgres://user:password@host:port/database with one or several hosts, or the object that all
   * connections of an instance share.
   */
  url: string | DatabaseHosts;
  clock: Clock;
  random: Random;
  log: Logger;
  beatMs?: number;
}

export function createPostgresBus({ url, ...ports }: PostgresBusDeps): ConnectionBus {
  const hosts = typeof url === 'string' ? new DatabaseHosts(url, ports.log) : url;
  const connect = connector((events) => new PostgresConnection(hosts, events));
  return new ConnectionBus({ kind: 'postgres', connect, ...ports });
}

/** The channel name for `topic` in LISTEN and NOTIFY. */
export function channelOf(topic: string): string {
  const plain = PREFIX + topic;
  if (Buffer.byteLength(plain) <= MAX_CHANNEL_BYTES) return plain;
  return `${PREFIX}#${createHash('sha256').update(topic).digest('hex').slice(0, 32)}`;
}

interface Notice {
  channel: string;
  payload: string;
  resolve: () => void;
  reject: (cause: unknown) => void;
}

class PostgresConnection implements PendingConnection {
  readonly #listener: Connection;
  readonly #notifier: Connection;
  /** Topics by channel, from the request to listen until the request to unlisten. */
  readonly #topics = new Map<string, string>();
  #queue: Notice[] = [];
  #notifying = false;

  constructor(hosts: DatabaseHosts, events: ConnectionEvents) {
    this.#listener = openConnection(hosts, 'cnapi-bus-listen', events.onLost);
    this.#notifier = openConnection(hosts, 'cnapi-bus-notify', events.onLost);
    this.#listener.client.on('notification', ({ channel, payload = '' }) => {
      const topic = this.#topics.get(channel);
      if (topic !== undefined) events.onPayload(topic, payload);
    });
  }

  async open(): Promise<void> {
    await Promise.all([this.#listener.client.connect(), this.#notifier.client.connect()]);
  }

  async change(subscribe: readonly string[], unsubscribe: readonly string[]): Promise<void> {
    const statements: string[] = [];
    for (const topic of unsubscribe) {
      const channel = channelOf(topic);
      this.#topics.delete(channel);
      statements.push(`unlisten ${pg.escapeIdentifier(channel)}`);
    }
    for (const topic of subscribe) {
      const channel = channelOf(topic);
      this.#topics.set(channel, topic);
      statements.push(`listen ${pg.escapeIdentifier(channel)}`);
    }
    await this.#listener.client.query(statements.join(';'));
  }

  send(topic: string, payload: string): Promise<void> {
    const channel = channelOf(topic);
    return new Promise((resolve, reject) => {
      this.#queue.push({ channel, payload, resolve, reject });
      void this.#notify();
    });
  }

  close(): void {
    this.#listener.drop();
    this.#notifier.drop();
    const queue = this.#queue;
    this.#queue = [];
    for (const { reject } of queue) reject(new Error('the connection was closed'));
  }

  /**
   * Sends the queue, one batch in flight at a time: the longer the queue, the larger the batches.
   */
  async #notify(): Promise<void> {
    if (this.#notifying) return;
    this.#notifying = true;
    while (this.#queue.length > 0) {
      const batch = this.#queue.splice(0, MAX_BATCH);
      try {
        await notify(this.#notifier.client, batch);
        for (const { resolve } of batch) resolve();
      } catch (err) {
        for (const { reject } of batch) reject(err);
      }
    }
    this.#notifying = false;
  }
}

async function notify(client: pg.Client, batch: readonly Notice[]): Promise<void> {
  await client.query({
    name: 'cnapi-bus-notify',
    text: `select pg_notify(channel, payload)
             from unnest($1::text[], $2::text[]) with ordinality as notice (channel, payload, place)
            order by place`,
    values: [batch.map(({ channel }) => channel), batch.map(({ payload }) => payload)],
  });
}

interface Connection {
  client: pg.Client;
  /** Destroys the socket immediately; a server that does not answer cannot delay it. */
  drop(): void;
}

function openConnection(hosts: DatabaseHosts, name: string, onLost: (cause: Error) => void): Connection {
  const socket = new Socket();
  const client = new DatabaseClient(hosts, {
    application_name: name,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    stream: () => socket,
  });
  // Also called when the server closes the connection.
  client.on('error', onLost);
  return { client, drop: () => void socket.destroy() };
}

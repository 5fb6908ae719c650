/**
 * The production bus: Redis publish and subscribe, one connection for each, because a subscribed connection may send
 * nothing else on servers that speak RESP2 only. ioredis keeps no queue and reconnects nothing by itself: a client is
 * one life of a connection, and `line-bus.ts` opens the next.
 */
import { Redis, type RedisOptions } from 'ioredis';
import type { Logger } from '../log.ts';
import type { Clock } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import { type LineEvents, lineOpener, type UnopenedLine } from './line.ts';
import { LineBus } from './line-bus.ts';

export interface RedisBusDependencies {
  /** redis://[[user]:password@]host:port[/db], or rediss:// for TLS. */
  url: string;
  /** Goes before each topic, so that several control planes can share one server. */
  prefix?: string;
  clock: Clock;
  random: Random;
  log: Logger;
  beatMs?: number;
}

export function createRedisBus({ url, prefix = 'cnapi:', ...ports }: RedisBusDependencies): LineBus {
  const openLine = lineOpener((events) => new RedisLine(url, prefix, events));
  return new LineBus({ kind: 'redis', openLine, ...ports });
}

const clientOptions = {
  lazyConnect: true,
  retryStrategy: null,
  enableOfflineQueue: false,
  autoResubscribe: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  connectTimeout: 3_000,
  disconnectTimeout: 100,
  keepAlive: 10_000,
} satisfies RedisOptions;

class RedisLine implements UnopenedLine {
  readonly #prefix: string;
  readonly #publisher: Redis;
  readonly #subscriber: Redis;
  #firstError: Error | undefined;

  constructor(url: string, prefix: string, events: LineEvents) {
    this.#prefix = prefix;
    this.#publisher = new Redis(url, { ...clientOptions, connectionName: 'cnapi-bus-publish' });
    this.#subscriber = new Redis(url, { ...clientOptions, connectionName: 'cnapi-bus-subscribe' });
    for (const client of [this.#publisher, this.#subscriber]) {
      client.on('error', (err: Error) => {
        this.#firstError ??= err;
      });
      client.on('end', () => events.onLost(this.#firstError ?? new Error('redis closed the connection')));
    }
    this.#subscriber.on('message', (channel: string, payload: string) => {
      events.onPayload(channel.slice(prefix.length), payload);
    });
  }

  async open(): Promise<void> {
    try {
      await Promise.all([this.#publisher.connect(), this.#subscriber.connect()]);
    } catch (err) {
      // connect() only says that the connection was closed; the event before it said why.
      throw this.#firstError ?? err;
    }
  }

  async change(hear: readonly string[], unhear: readonly string[]): Promise<void> {
    const channels = (topics: readonly string[]) => topics.map((topic) => this.#prefix + topic);
    await Promise.all([
      hear.length > 0 && this.#subscriber.subscribe(...channels(hear)),
      unhear.length > 0 && this.#subscriber.unsubscribe(...channels(unhear)),
    ]);
  }

  async send(topic: string, payload: string): Promise<void> {
    await this.#publisher.publish(this.#prefix + topic, payload);
  }

  close(): void {
    this.#publisher.disconnect();
    this.#subscriber.disconnect();
  }
}

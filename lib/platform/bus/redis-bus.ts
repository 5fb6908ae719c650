/**
 * The production bus: Redis publish and subscribe. It uses one connection for each, because servers
 * that speak only RESP2 accept no other commands on a subscribed connection. ioredis keeps no queue
 * and does not reconnect: one client is one connection, and `connection-bus.ts` opens the next.
 * Under Sentinel each new connection asks for the current master, and ends when the Sentinels
 * report another master.
 */
import { Redis, type RedisOptions } from 'ioredis';
import type { Logger } from '../log.ts';
import { type Random, shuffled } from '../random.ts';
import type { Clock } from '../time/clock.ts';
import { type ConnectionEvents, connector, type PendingConnection } from './bus-connection.ts';
import { ConnectionBus } from './connection-bus.ts';
import { parseRedisUrl, type RedisTarget } from './redis-url.ts';

interface RedisBusDeps {
  /** A URL that `redis-url.ts` accepts. */
  url: string;
  /** Prefix of each channel name, so that several control planes can share one server. */
  prefix?: string;
  clock: Clock;
  random: Random;
  log: Logger;
  beatMs?: number;
}

export function createRedisBus({ url, prefix = 'cnapi:', ...ports }: RedisBusDeps): ConnectionBus {
  const target = parseRedisUrl(url);
  const createClient: CreateClient = (connectionName) => openClient(target, connectionName, ports.random);
  const connect = connector((events) => new RedisConnection(createClient, prefix, events));
  return new ConnectionBus({ kind: 'redis', connect, ...ports });
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

/** Short enough that a second and a third Sentinel can be asked within OPEN_TIMEOUT_MS. */
const SENTINEL_TIMEOUT_MS = 800;

type CreateClient = (connectionName: string) => Redis;

function openClient(target: RedisTarget, connectionName: string, random: Random): Redis {
  if (target.kind === 'server') return new Redis(target.url, { ...clientOptions, connectionName });
  const { tls, ...access } = target.access;
  return new Redis({
    ...clientOptions,
    ...access,
    connectionName,
    ...(tls ? { tls: {}, sentinelTLS: {}, enableTLSForSentinelMode: true } : {}),
    // Random order, so that a Sentinel that does not answer is not always asked first.
    sentinels: shuffled(target.sentinels, random),
    name: target.masterName,
    role: 'master',
    connectTimeout: SENTINEL_TIMEOUT_MS,
    sentinelCommandTimeout: SENTINEL_TIMEOUT_MS,
    sentinelRetryStrategy: () => null,
    failoverDetector: true,
  });
}

class RedisConnection implements PendingConnection {
  readonly #prefix: string;
  readonly #publisher: Redis;
  readonly #subscriber: Redis;
  #firstError: Error | undefined;

  constructor(createClient: CreateClient, prefix: string, events: ConnectionEvents) {
    this.#prefix = prefix;
    this.#publisher = createClient('cnapi-bus-publish');
    this.#subscriber = createClient('cnapi-bus-subscribe');
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
      // connect() reports only that the connection was closed; the earlier event has the reason.
      throw this.#firstError ?? err;
    }
  }

  async change(subscribe: readonly string[], unsubscribe: readonly string[]): Promise<void> {
    const channels = (topics: readonly string[]) => topics.map((topic) => this.#prefix + topic);
    await Promise.all([
      subscribe.length > 0 && this.#subscriber.subscribe(...channels(subscribe)),
      unsubscribe.length > 0 && this.#subscriber.unsubscribe(...channels(unsubscribe)),
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

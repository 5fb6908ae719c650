/**
 * The bus over any kind of server. It owns reconnecting, subscriptions, health and bounds; redis,
 * postgres and memory differ only in how one connection is made. Made by `create-bus.ts` and the
 * tests.
 *
 *                opened                     lost, given up
 *    connecting ────────▶ connected ──────────────────────▶ waiting (full jitter, ──▶ connecting
 *         └──────────────── failed ─────────────────────────▲        at most 2 s)
 *
 * Callers see no failures. While the server is unreachable, messages are dropped and counted, and
 * subscriptions wait.
 */

import { messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Random } from '../random.ts';
import { type Clock, settlesWithin, type Timer } from '../time/clock.ts';
import type { Bus, BusMessage, BusStats, Subscription } from './bus.ts';
import type { BusConnection, Connect } from './bus-connection.ts';
import { type Health, type HealthEvent, LATE_TICK_PERIODS, stepHealth, unprovenHealth } from './health.ts';
import { decodeBusMessage, encodeBusMessage, isTopic } from './message.ts';
import { Subscriptions, type TopicHandler } from './subscriptions.ts';

const START_PATIENCE_MS = 1_000;
const OPEN_TIMEOUT_MS = 3_000;
const BACKOFF_FIRST_MS = 100;
const BACKOFF_MAX_MS = 2_000;
const MAX_IN_FLIGHT = 1_000;
const MAX_TOPICS_PER_CHANGE = 500;
const STOP_PATIENCE_MS = 250;

interface ConnectionBusDeps {
  kind: string;
  connect: Connect;
  clock: Clock;
  random: Random;
  log: Logger;
  /** Period of its own beats. Default 1 s; tests use less. */
  beatMs?: number;
}

export class ConnectionBus implements Bus {
  readonly kind: string;
  readonly #connect: Connect;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #log: Logger;
  readonly #beatMs: number;
  readonly #beatTopic: string;

  readonly #subscriptions = new Subscriptions();
  readonly #inFlight = new Set<Promise<void>>();
  readonly #healthListeners = new Set<(healthy: boolean) => void>();
  readonly #stopping = new AbortController();
  readonly #counts = { published: 0, received: 0, dropped: 0, reconnects: 0 };
  #health: Health = unprovenHealth;
  #episode: ConnectionEpisode | undefined;
  #running: Promise<void> | undefined;

  constructor({ kind, connect, clock, random, log, beatMs = 1_000 }: ConnectionBusDeps) {
    this.kind = kind;
    this.#connect = connect;
    this.#clock = clock;
    this.#random = random;
    this.#log = log;
    this.#beatMs = beatMs;
    this.#beatTopic = `beat:${random.uuid()}`;
    this.#subscriptions.add({
      topic: this.#beatTopic,
      onMessage: ({ sequence }) => this.#step({ type: 'received', sequence: Number(sequence) }, 'own beat came back'),
      onReady: () => this.#episode && this.#beat(this.#episode, true),
    });
  }

  async start(): Promise<void> {
    if (this.#running) return;
    const connected = Promise.withResolvers<void>();
    this.#running = this.#run(connected.resolve);
    await settlesWithin(this.#clock, START_PATIENCE_MS, connected.promise);
  }

  async stop(): Promise<void> {
    // Messages in flight have a short time to arrive.
    if (this.#inFlight.size > 0 && this.#health.healthy)
      await settlesWithin(this.#clock, STOP_PATIENCE_MS, Promise.all(this.#inFlight));
    this.#healthListeners.clear();
    this.#stopping.abort();
    await this.#running;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  publish(topic: string, message: BusMessage): void {
    const payload = encodeBusMessage(message);
    const connection = this.#episode?.connection;
    if (!connection || payload === undefined || !isTopic(topic) || this.#inFlight.size >= MAX_IN_FLIGHT) {
      this.#counts.dropped += 1;
      return;
    }
    const sending = this.#send(connection, topic, payload).finally(() => this.#inFlight.delete(sending));
    this.#inFlight.add(sending);
  }

  subscribe(topic: string, onMessage: (message: BusMessage) => void, onReady?: () => void): Subscription {
    if (!isTopic(topic)) throw new TypeError(`Not a bus topic: ${JSON.stringify(topic)}`);
    const handler: TopicHandler = { topic, onMessage, onReady };
    if (this.#subscriptions.add(handler)) queueMicrotask(() => this.#notifyReady([handler]));
    void this.#reconcile();
    return {
      close: () => {
        this.#subscriptions.remove(handler);
        void this.#reconcile();
      },
    };
  }

  isHealthy(): boolean {
    return this.#health.healthy;
  }

  onHealthChange(listener: (healthy: boolean) => void): Subscription {
    const own = (healthy: boolean) => listener(healthy);
    this.#healthListeners.add(own);
    return { close: () => void this.#healthListeners.delete(own) };
  }

  stats(): BusStats {
    return { ...this.#counts, topics: this.#subscriptions.topicCount - 1 };
  }

  /** Connects, serves the connection until it is lost, waits, and repeats until stopped. */
  async #run(onConnected: () => void): Promise<void> {
    let failures = 0;
    let episodes = 0;
    while (!this.#stopping.signal.aborted) {
      const episode = await this.#open(failures === 0);
      failures = episode ? 0 : failures + 1;
      if (episode) {
        episodes += 1;
        if (episodes > 1) this.#counts.reconnects += 1;
        onConnected();
        await this.#serve(episode);
      }
      await this.#clock.sleep(this.#backoffMs(failures), this.#stopping.signal);
    }
  }

  /**
   * One connection attempt; undefined when it failed. Only the first failure of an outage is logged
   * as a warning.
   */
  async #open(isFirst: boolean): Promise<ConnectionEpisode | undefined> {
    const { promise: ended, resolve: end } = Promise.withResolvers<Error>();
    const expiry = new AbortController();
    const timer = this.#clock.after(OPEN_TIMEOUT_MS, () =>
      expiry.abort(new Error(`no answer within ${OPEN_TIMEOUT_MS} ms`)),
    );
    const onPayload = (topic: string, payload: string) => this.#onPayload(topic, payload);
    try {
      const signal = AbortSignal.any([expiry.signal, this.#stopping.signal]);
      return { connection: await this.#connect({ onPayload, onLost: end }, signal), ended, end, changing: false };
    } catch (err) {
      const level = isFirst && !this.#stopping.signal.aborted ? 'warn' : 'debug';
      this.#log[level]({ err, bus: this.kind }, `bus: cannot be reached: ${messageOf(err)}; trying again`);
      return undefined;
    } finally {
      timer.cancel();
    }
  }

  /** Serves one connection from its opening to its end. */
  async #serve(episode: ConnectionEpisode): Promise<void> {
    const onStop = () => episode.end(new Error('stopping'));
    this.#stopping.signal.addEventListener('abort', onStop, { once: true });
    if (this.#stopping.signal.aborted) onStop();
    this.#episode = episode;
    this.#log.info({ bus: this.kind, topics: this.#subscriptions.topicCount }, 'bus: connected');
    void this.#reconcile();
    const ticking = this.#tickEachPeriod(episode);
    const cause = await episode.ended;
    ticking.cancel();
    this.#stopping.signal.removeEventListener('abort', onStop);
    this.#episode = undefined;
    episode.connection.close();
    this.#subscriptions.lost();
    const level = this.#stopping.signal.aborted ? 'debug' : 'info';
    this.#log[level]({ err: cause, bus: this.kind }, `bus: connection ended: ${cause.message}`);
    this.#step({ type: 'lost' }, cause.message);
  }

  #backoffMs(failures: number): number {
    return this.#random.fraction() * Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** Math.min(failures, 10));
  }

  async #send(connection: BusConnection, topic: string, payload: string): Promise<void> {
    try {
      await connection.send(topic, payload);
      this.#counts.published += 1;
    } catch {
      this.#counts.dropped += 1;
    }
  }

  /**
   * Transfers the wanted subscriptions to the server, one change in flight at a time. Notifies
   * subscribers when the server has confirmed theirs.
   */
  async #reconcile(): Promise<void> {
    const episode = this.#episode;
    if (!episode || episode.changing) return;
    episode.changing = true;
    try {
      for (;;) {
        const change = this.#subscriptions.takeChange(MAX_TOPICS_PER_CHANGE);
        if (!change) break;
        await episode.connection.change(change.subscribe, change.unsubscribe);
        if (this.#episode !== episode) return;
        this.#notifyReady(this.#subscriptions.confirm(change));
      }
    } catch (err) {
      episode.end(new Error(`topics refused: ${messageOf(err)}`, { cause: err }));
    }
    episode.changing = false;
  }

  #notifyReady(handlers: readonly TopicHandler[]): void {
    for (const handler of handlers) {
      if (handler.onReady && this.#subscriptions.has(handler)) this.#call(handler.topic, handler.onReady);
    }
  }

  #onPayload(topic: string, payload: string): void {
    const message = decodeBusMessage(payload);
    if (!message) {
      this.#counts.dropped += 1;
      return;
    }
    if (topic !== this.#beatTopic) this.#counts.received += 1;
    for (const handler of this.#subscriptions.handlersOf(topic)) {
      if (this.#subscriptions.has(handler)) this.#call(topic, () => handler.onMessage(message));
    }
  }

  #call(topic: string, callback: () => void): void {
    try {
      callback();
    } catch (err) {
      this.#log.error({ err, topic }, 'bus: a handler threw; the other handlers still run');
    }
  }

  #tickEachPeriod(episode: ConnectionEpisode): Timer {
    let tickedAt = this.#clock.now();
    return this.#clock.every(this.#beatMs, () => {
      const now = this.#clock.now();
      const late = now - tickedAt > LATE_TICK_PERIODS * this.#beatMs;
      tickedAt = now;
      this.#clock.afterPoll(() => {
        if (this.#episode === episode) this.#beat(episode, late);
      });
    });
  }

  #beat(episode: ConnectionEpisode, late: boolean): void {
    const effects = this.#step({ type: 'tick', late }, 'own beats do not come back');
    if (effects.length > 0) episode.end(new Error(`${this.#health.misses} own beats in a row did not come back`));
    else episode.connection.send(this.#beatTopic, JSON.stringify({ sequence: this.#health.sent })).catch(() => {});
  }

  #step(event: HealthEvent, reason: string) {
    const before = this.#health.healthy;
    const { state, effects } = stepHealth(this.#health, event);
    this.#health = state;
    if (state.healthy !== before && !this.#stopping.signal.aborted) this.#announce(state.healthy, reason);
    return effects;
  }

  #announce(healthy: boolean, reason: string): void {
    this.#log[healthy ? 'info' : 'warn']({ bus: this.kind }, healthy ? 'bus: healthy' : `bus: unhealthy: ${reason}`);
    for (const listener of [...this.#healthListeners]) this.#call('health', () => listener(healthy));
  }
}

/** One connection, from its opening to its end. */
interface ConnectionEpisode {
  readonly connection: BusConnection;
  readonly ended: Promise<Error>;
  readonly end: (cause: Error) => void;
  /** A change of topics is in flight. */
  changing: boolean;
}

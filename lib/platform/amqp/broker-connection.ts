/**
 * One connection to an AMQP broker with one channel. It is opened in the background and opened
 * again whenever it is lost, with backoff and jitter, so nobody waits for a broker that is down or
 * slow. Its owner sets up the channel (queues, bindings, consumers) in `setUp`, which is repeated
 * for each connection. An error of the channel ends the connection.
 *
 * RabbitMQ that is short of disk or memory stops reading from connections that publish, and tells
 * them so (`blocked`) when they publish. So a connection publishes an empty message that no queue
 * takes when it is opened, and again and again, and the broker cannot be used while the connection
 * is blocked.
 *
 *     new ──start()──▶ connecting ──set up, its message confirmed──▶ online ──blocked──▶ blocked
 *                       ├──set up, blocked──▶ blocked ──unblocked──▶ online
 *                       └──failed, or takes too long──▶ pausing ──▶ connecting
 *     online, blocked ──lost──▶ pausing
 *     any ──stop()──▶ stopped
 */
import type { Duplex } from 'node:stream';
import { type ChannelModel, type ConfirmChannel, connect } from 'amqplib';
import { messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Random } from '../random.ts';
import { type Clock, settlesWithin } from '../time/clock.ts';
import { parseAmqpUrl } from './amqp-url.ts';

interface BrokerConnectionDeps {
  url: string;
  /** Shown by the broker's tools. */
  name: string;
  /** Prepares a new channel. If it rejects, the connection is opened again later. */
  setUp: (channel: ConfirmChannel) => Promise<void>;
  /**
   * Where the empty message goes: to an exchange that the user may write to, with a key that
   * nothing is bound to.
   */
  probe: { exchange: string; routingKey: string };
  clock: Clock;
  random: Random;
  log: Logger;
}

const FIRST_PAUSE_MS = 250;
const MAX_PAUSE_MS = 10_000;
/** For the connection, and again for its set-up. */
const OPENS_WITHIN_MS = 10_000;
const CLOSES_WITHIN_MS = 1_000;
/** How soon an idle connection learns that the broker takes no messages. */
const PROBE_EVERY_MS = 5_000;

export class BrokerConnection {
  readonly #deps: BrokerConnectionDeps;
  readonly #stopping = new AbortController();
  #channel: ConfirmChannel | undefined;
  #isBlocked = false;
  #running: Promise<void> | undefined;
  /** Waits for the next connection. */
  readonly #waiters = new Set<() => void>();
  #failure: string | undefined;
  #connects = 0;

  constructor(deps: BrokerConnectionDeps) {
    this.#deps = deps;
  }

  /** Undefined while the broker cannot be used. */
  get channel(): ConfirmChannel | undefined {
    return this.#isBlocked ? undefined : this.#channel;
  }

  /**
   * Why the broker cannot be used; undefined while it can, and before the first attempt has failed.
   */
  get failure(): string | undefined {
    return this.#failure;
  }

  /** Connections that were opened so far. */
  get connects(): number {
    return this.#connects;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  /**
   * The channel, as soon as there is one; undefined if there is none within `withinMs`, or `signal`
   * aborts.
   */
  async whenOnline(withinMs: number, signal: AbortSignal): Promise<ConfirmChannel | undefined> {
    if (this.channel !== undefined) return this.channel;
    const ended = new AbortController();
    const end = () => ended.abort();
    this.#waiters.add(end);
    signal.addEventListener('abort', end, { once: true });
    if (!signal.aborted) await this.#deps.clock.sleep(withinMs, ended.signal);
    signal.removeEventListener('abort', end);
    this.#waiters.delete(end);
    return this.channel;
  }

  async #run(): Promise<void> {
    const { clock, random } = this.#deps;
    const { signal } = this.#stopping;
    for (let failures = 0; !signal.aborted; ) {
      const wasOnline = await this.#once().catch((error) => this.#noteFailure(error));
      failures = wasOnline ? 0 : failures + 1;
      const longestMs = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(failures, 10));
      await clock.sleep(FIRST_PAUSE_MS + random.fraction() * (longestMs - FIRST_PAUSE_MS), signal);
    }
  }

  /** One connection, until it is lost. True if it was online. */
  async #once(): Promise<boolean> {
    const { clock, name, probe, setUp, url } = this.#deps;
    const { signal } = this.#stopping;
    const opening = connect(parseAmqpUrl(url), {
      timeout: OPENS_WITHIN_MS,
      clientProperties: { connection_name: name },
    });
    const connection = await this.#opened(opening);
    const lost = new AbortController();
    const lose = (error?: Error) => {
      if (error !== undefined && !lost.signal.aborted) this.#noteFailure(error);
      this.#channel = undefined;
      lost.abort();
    };
    connection.on('error', lose);
    connection.on('close', lose);
    const { promise: blocked, resolve: noteBlocked } = Promise.withResolvers<void>();
    connection.on('blocked', (reason) => {
      this.#isBlocked = true;
      this.#noteFailure(new Error(`the broker takes no messages: ${reason}`));
      noteBlocked();
    });
    connection.on('unblocked', () => {
      this.#isBlocked = false;
      if (this.#channel !== undefined) this.#noteOnline('broker: takes messages again');
    });
    signal.addEventListener('abort', () => lose(), { once: true, signal: lost.signal });
    let publishProbe: (() => void) | undefined;
    const probes = clock.every(PROBE_EVERY_MS, () => {
      if (this.channel !== undefined) publishProbe?.();
    });
    try {
      const channel = await this.#within(connection.createConfirmChannel());
      channel.on('error', lose);
      channel.on('close', () => lose());
      await this.#within(setUp(channel));
      publishProbe = () => void channel.publish(probe.exchange, probe.routingKey, Buffer.alloc(0));
      publishProbe();
      await this.#within(Promise.race([channel.waitForConfirms(), blocked]));
      if (lost.signal.aborted) return false;
      this.#channel = channel;
      this.#connects += 1;
      if (!this.#isBlocked) this.#noteOnline('broker: connected');
      if (!lost.signal.aborted)
        await new Promise((resolve) => lost.signal.addEventListener('abort', resolve, { once: true }));
      return true;
    } finally {
      lose();
      probes.cancel();
      await this.#close(connection);
      this.#isBlocked = false;
    }
  }

  /** A connection that is opened too late is closed. */
  async #opened(opening: Promise<ChannelModel>): Promise<ChannelModel> {
    try {
      return await this.#within(opening);
    } catch (error) {
      opening.then((late) => this.#close(late)).catch(() => undefined);
      throw error;
    }
  }

  async #within<Result>(work: Promise<Result>): Promise<Result> {
    const { signal } = this.#stopping;
    const isOver = new AbortController();
    const stopped = new Promise<void>((resolve) =>
      signal.addEventListener('abort', () => resolve(), { once: true, signal: isOver.signal }),
    );
    const isSettled = await settlesWithin(this.#deps.clock, OPENS_WITHIN_MS, Promise.race([work, stopped])).finally(
      () => isOver.abort(),
    );
    if (signal.aborted) throw new Error('this instance stops');
    if (!isSettled) throw new Error(`the broker did not answer within ${OPENS_WITHIN_MS} ms`);
    return work;
  }

  /**
   * A frozen broker does not answer a close either, and the library only ends its own half of the
   * socket.
   */
  async #close(connection: ChannelModel): Promise<void> {
    connection.on('error', () => undefined);
    const closing = connection.close().catch(() => undefined);
    await settlesWithin(this.#deps.clock, CLOSES_WITHIN_MS, closing);
    const { stream } = connection.connection as { stream?: Duplex };
    stream?.destroy();
  }

  #noteOnline(event: string): void {
    this.#failure = undefined;
    this.#deps.log.info({ broker: this.#deps.name }, event);
    for (const wake of this.#waiters) wake();
  }

  /** Logs the first of several equal failures. */
  #noteFailure(error: unknown): boolean {
    const reason = messageOf(error);
    const isNew = this.#failure !== reason;
    this.#failure = reason;
    if (isNew && !this.#stopping.signal.aborted)
      this.#deps.log.warn({ broker: this.#deps.name, reason }, 'broker: cannot be used');
    return false;
  }
}

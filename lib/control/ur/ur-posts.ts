/**
 * Has Ur run scripts, and hands its replies to those who wait here. Each process has a reply queue
 * of its own, bound to one reply for each script in progress. The queue outlives a lost connection
 * by ten minutes, so a reply that arrives meanwhile is not lost. A script is published once.
 *
 *     run ──online──▶ bound ──published──▶ sent ──confirmed──▶ confirmed ──reply──▶ replied
 *      │                │                    ├──returned: no Ur listens──▶ nobody
 *      │                │                    └──connection lost, or no confirmation──▶ unconfirmed
 *      └──offline───────┴──offline──▶ not sent
 *     run, bound ──waitMs passed──▶ not sent      sent, confirmed ──waitMs passed──▶ timed out
 *     any ──given up──▶ given up
 */
import type { ConfirmChannel, ConsumeMessage } from 'amqplib';
import type { BrokerConnection } from '../../platform/amqp/broker-connection.ts';
import { type Clock, settlesWithin, type Timer } from '../../platform/time/clock.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { readReply, type UrReply } from './execution.ts';
import { EXCHANGE } from './ur.ts';

interface UrPostsDeps {
  /** The name of the reply queue, of one process life. */
  queue: string;
  connection: () => Pick<BrokerConnection, 'channel' | 'whenOnline'>;
  clock: Clock;
}

/** How a script ended, as far as this instance knows. */
type RunOutcome =
  | { kind: 'replied'; reply: UrReply }
  | { kind: 'bad-reply'; reason: string }
  | { kind: 'offline' | 'nobody' | 'unconfirmed' | 'timed-out' | 'given-up' };

interface Running {
  serverUuid: string;
  isSent: boolean;
  isConfirmed: boolean;
  settle(outcome: RunOutcome): void;
}

interface Order {
  key: string;
  message: JsonObject;
  /** How long it may wait in the queue of Ur, in milliseconds. */
  expiration: number;
}

export interface UrRun {
  /** In the routing keys; no dots. */
  id: string;
  serverUuid: string;
  message: JsonObject;
  /** From the call on. The broker does not hand the script to Ur after this time. */
  waitMs: number;
  signal: AbortSignal;
}

const ONLINE_WITHIN_MS = 10_000;
const CONFIRMED_WITHIN_MS = 30_000;
/** A broker that does not answer deletes it when it expires. */
const DELETED_WITHIN_MS = 1_000;
const QUEUE_EXPIRES_MS = 600_000;
const MAX_QUEUE_BYTES = 64 * 1024 * 1024;

export class UrPosts {
  readonly #deps: UrPostsDeps;
  readonly #running = new Map<string, Running>();
  #runs = 0;
  #lateReplies = 0;

  constructor(deps: UrPostsDeps) {
    this.#deps = deps;
  }

  /** Scripts that were sent, and replies that nobody waited for. */
  get stats(): { running: number; runs: number; lateReplies: number } {
    return { running: this.#running.size, runs: this.#runs, lateReplies: this.#lateReplies };
  }

  /** Receives replies on a new channel, also of scripts that were sent on an earlier one. */
  async setUp(channel: ConfirmChannel): Promise<void> {
    const { queue } = this.#deps;
    const bounds = { messageTtl: QUEUE_EXPIRES_MS, arguments: { 'x-max-length-bytes': MAX_QUEUE_BYTES } };
    await channel.assertQueue(queue, { durable: true, expires: QUEUE_EXPIRES_MS, ...bounds });
    for (const [id, { serverUuid }] of this.#running)
      await channel.bindQueue(queue, EXCHANGE, replyKey(serverUuid, id));
    channel.on('return', ({ fields }) => this.#settle(fields.routingKey, { kind: 'nobody' }));
    channel.on('close', () => this.#lost());
    await channel.consume(queue, (message) => {
      if (message === null) return void channel.close().catch(() => undefined);
      this.#receive(message);
      channel.ack(message);
    });
  }

  /** Never rejects. */
  async run({ id, serverUuid, message, waitMs, signal }: UrRun): Promise<RunOutcome> {
    const { clock, connection, queue } = this.#deps;
    const endsAt = clock.now() + waitMs;
    const channel = await connection().whenOnline(Math.min(ONLINE_WITHIN_MS, waitMs), signal);
    if (signal.aborted) return { kind: 'given-up' };
    const leftMs = Math.ceil(endsAt - clock.now());
    if (channel === undefined || leftMs <= 0) return { kind: 'offline' };
    const { promise, resolve } = Promise.withResolvers<RunOutcome>();
    const running: Running = { serverUuid, isSent: false, isConfirmed: false, settle: resolve };
    this.#running.set(id, running);
    const giveUp = () => resolve({ kind: 'given-up' });
    signal.addEventListener('abort', giveUp, { once: true });
    const timers: Timer[] = [clock.after(leftMs, () => resolve({ kind: running.isSent ? 'timed-out' : 'offline' }))];
    try {
      const bound = channel.bindQueue(queue, EXCHANGE, replyKey(serverUuid, id));
      const isBound = await Promise.race([bound.then(() => true).catch(() => false), promise.then(() => false)]);
      if (signal.aborted) return { kind: 'given-up' };
      // A message that is published while the connection is blocked arrives when it no longer is.
      if (!isBound || connection().channel !== channel) return { kind: 'offline' };
      const unconfirmed = () => running.isConfirmed || resolve({ kind: 'unconfirmed' });
      timers.push(clock.after(CONFIRMED_WITHIN_MS, unconfirmed));
      const expiration = Math.max(1, Math.ceil(endsAt - clock.now()));
      this.#publish(channel, running, { key: executeKey(serverUuid, id), message, expiration });
      return await promise;
    } finally {
      signal.removeEventListener('abort', giveUp);
      for (const timer of timers) timer.cancel();
      this.#running.delete(id);
      this.#unbind(serverUuid, id);
    }
  }

  /** Deletes the reply queue; its replies have nobody who waits. */
  async stop(): Promise<void> {
    const { clock, connection, queue } = this.#deps;
    const deletion = connection().channel?.deleteQueue(queue);
    if (deletion !== undefined)
      await settlesWithin(
        clock,
        DELETED_WITHIN_MS,
        deletion.catch(() => undefined),
      );
  }

  #publish(channel: ConfirmChannel, running: Running, { key, message, expiration }: Order): void {
    this.#runs += 1;
    running.isSent = true;
    const content = Buffer.from(JSON.stringify(message));
    const options = { mandatory: true, contentType: 'application/json', expiration };
    try {
      channel.publish(EXCHANGE, key, content, options, (error: unknown) => {
        running.isConfirmed = error === null || error === undefined;
        if (!running.isConfirmed) running.settle({ kind: 'unconfirmed' });
      });
    } catch {
      running.settle({ kind: 'offline' });
    }
  }

  #receive({ content, fields }: ConsumeMessage): void {
    const reply = readReply(content);
    const outcome =
      typeof reply === 'string' ? { kind: 'bad-reply' as const, reason: reply } : { kind: 'replied' as const, reply };
    if (!this.#settle(fields.routingKey, outcome)) this.#lateReplies += 1;
  }

  /** False if nobody waits for the server and the id of this routing key. */
  #settle(routingKey: string, outcome: RunOutcome): boolean {
    const [, , serverUuid, id = ''] = routingKey.split('.');
    const running = this.#running.get(id);
    if (running?.serverUuid !== serverUuid) return false;
    running?.settle(outcome);
    return running !== undefined;
  }

  /** What the broker has confirmed continues: its reply comes over the next connection. */
  #lost(): void {
    for (const { isConfirmed, settle } of this.#running.values()) if (!isConfirmed) settle({ kind: 'unconfirmed' });
  }

  #unbind(serverUuid: string, id: string): void {
    const { connection, queue } = this.#deps;
    connection()
      .channel?.unbindQueue(queue, EXCHANGE, replyKey(serverUuid, id))
      .catch(() => undefined);
  }
}

const executeKey = (serverUuid: string, id: string): string => `ur.execute.${serverUuid}.${id}`;
const replyKey = (serverUuid: string, id: string): string => `ur.execute-reply.${serverUuid}.${id}`;

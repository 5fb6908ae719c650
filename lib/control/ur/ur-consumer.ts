/**
 * Receives what Ur publishes, from the queue that all instances share. A message is acknowledged
 * when its effect is stored, so that an instance that dies meanwhile loses nothing: the broker
 * gives the message to another one. Storing it twice is harmless. A message that nobody can use is
 * dropped, counted and logged without its content.
 *
 *     delivered ──read──▶ waiting ──permit──▶ storing ──stored, or not for Ur to change──▶ acknowledged
 *         │                  │  ▲                ├──refused, or too old──▶ dropped
 *         └──defect──▶ dropped  └──after a pause─┴──row locked, or no database
 *                            └──a newer message of its server──▶ acknowledged
 *
 * One message of a server is stored at a time, and one more waits. A message that is tried again
 * holds no permit while it pauses. So one server, whose row is locked, does not keep others
 * waiting.
 */
import type { ConfirmChannel, ConsumeMessage } from 'amqplib';
import { type CnapiError, isTemporary, messageOf } from '../../platform/errors.ts';
import { LogLimiter } from '../../platform/limiting/log-limiter.ts';
import { Semaphore } from '../../platform/limiting/semaphore.ts';
import type { Logger } from '../../platform/log.ts';
import { Batcher } from '../../platform/postgres/batches/batcher.ts';
import type { Database } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { readRow } from '../roster/status/roster-store.ts';
import { TransitionLog } from '../roster/status/transition-log.ts';
import type { ServerDocument } from '../servers/server.ts';
import type { Servers } from '../servers/servers.ts';
import { storeSysinfoWithoutAgent } from '../servers/sysinfo-without-agent.ts';
import {
  EXCHANGE,
  MESSAGE_LIFETIME_MS,
  mayChange,
  REASONS_WITHOUT_AGENT,
  readUrMessage,
  SHARED_BINDINGS,
  SHARED_QUEUE,
} from './ur.ts';
import { recordMessages } from './ur-store.ts';

interface UrConsumerDeps {
  database: Database;
  cnapiUuid: string;
  servers: Pick<Servers, 'recordSysinfo'>;
  /** Returns why this new server must not be created, if so. */
  refusalOf: (serverUuid: string) => CnapiError | undefined;
  /** Has the server's Ur say its sysinfo. */
  requestSysinfo: (serverUuid: string) => Promise<JsonObject | undefined>;
  clock: Clock;
  log: Logger;
}

interface UrConsumerStats {
  /** Messages that arrived. */
  received: number;
  /** Messages whose effect is stored. */
  stored: number;
  /** Messages that nobody can use. */
  dropped: number;
  /** Messages about servers that are set up or had an agent. */
  ignored: number;
  /** Messages that were not stored because their server said something newer. */
  replaced: number;
}

/** The server was set up, or has had an agent. */
class NotOfUrError extends Error {}

/** A sysinfo that is not acknowledged yet. */
interface Held {
  channel: ConfirmChannel;
  message: ConsumeMessage;
  sysinfo: JsonObject;
  receivedAt: number;
}

/** Messages that the broker sends before the first one is acknowledged: bounds memory. */
const PREFETCH = 128;
/** Messages that are stored at one time. */
const PERMITS = 16;
const RETRY_MS = 1_000;
const MAX_QUEUE_BYTES = 64 * 1024 * 1024;
const MAX_BATCH = 100;

/** The shared queue. An existing one must have been declared like this. */
const QUEUE_OPTIONS = {
  durable: true,
  messageTtl: MESSAGE_LIFETIME_MS,
  arguments: { 'x-max-length-bytes': MAX_QUEUE_BYTES },
};

export class UrConsumer {
  readonly stats: UrConsumerStats = { received: 0, stored: 0, dropped: 0, ignored: 0, replaced: 0 };
  readonly #deps: UrConsumerDeps;
  readonly #warnings: LogLimiter;
  readonly #transitions: TransitionLog;
  readonly #messages: Batcher<string, true>;
  readonly #permits = new Semaphore(PERMITS);
  /** By server: its newest message. */
  readonly #waiting = new Map<string, Held>();
  /** By server: stores its messages until none waits. */
  readonly #working = new Map<string, Promise<void>>();
  #channel: ConfirmChannel | undefined;
  /** Messages of the channel that are not acknowledged. */
  #unacknowledged = 0;
  readonly #stopping = new AbortController();

  constructor(deps: UrConsumerDeps) {
    this.#deps = deps;
    this.#warnings = new LogLimiter(deps);
    this.#transitions = new TransitionLog(deps);
    this.#messages = new Batcher<string, true>({
      ...deps,
      what: 'messages of Ur',
      keyOf: (serverUuid) => serverUuid,
      maxBatch: MAX_BATCH,
      ask: (serverUuids, connection) => this.#record(serverUuids, connection),
    });
  }

  /**
   * Consumes from a new channel. What was delivered on an earlier one, the broker delivers again.
   */
  async setUp(channel: ConfirmChannel): Promise<void> {
    this.#channel = channel;
    this.#unacknowledged = 0;
    this.#waiting.clear();
    await channel.prefetch(PREFETCH);
    await channel.assertQueue(SHARED_QUEUE, QUEUE_OPTIONS);
    for (const binding of SHARED_BINDINGS) await channel.bindQueue(SHARED_QUEUE, EXCHANGE, binding);
    await channel.consume(SHARED_QUEUE, (message) => {
      // The queue was deleted: the channel is closed, and its owner sets up another one.
      if (message === null) return void channel.close().catch(() => undefined);
      this.#deliver(channel, message);
    });
  }

  /** Messages that were received, and are neither stored nor dropped. */
  get unacknowledged(): number {
    return this.#unacknowledged;
  }

  /** Whether messages wait for others: here, or at the broker. */
  get isBehind(): boolean {
    return this.#permits.waiting > 0 || this.#unacknowledged >= PREFETCH;
  }

  /** Call it when the connection is closed. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#channel = undefined;
    await Promise.all(this.#working.values());
  }

  #deliver(channel: ConfirmChannel, message: ConsumeMessage): void {
    this.stats.received += 1;
    this.#unacknowledged += 1;
    const read = readUrMessage(message.fields.routingKey, message.content);
    if ('defect' in read) return this.#drop({ channel, message }, read.defect);
    const { kind, serverUuid, sysinfo } = read;
    if (kind === 'sysinfo') return this.#hold(serverUuid, { channel, message, sysinfo, receivedAt: this.#now() });
    void this.#started(serverUuid);
    this.#acknowledge({ channel, message });
  }

  #hold(serverUuid: string, held: Held): void {
    const older = this.#waiting.get(serverUuid);
    this.#waiting.set(serverUuid, held);
    if (older !== undefined) this.#replace(older);
    if (!this.#working.has(serverUuid)) this.#working.set(serverUuid, this.#work(serverUuid));
  }

  /** Never rejects. */
  async #work(serverUuid: string): Promise<void> {
    const { signal } = this.#stopping;
    while (this.#waiting.has(serverUuid) && !signal.aborted) {
      const isDone = await this.#permits.run(() => this.#storeNewest(serverUuid));
      if (!isDone) await this.#deps.clock.sleep(RETRY_MS, signal);
    }
    this.#working.delete(serverUuid);
  }

  /** False: try again after a pause. */
  async #storeNewest(serverUuid: string): Promise<boolean> {
    const held = this.#waiting.get(serverUuid);
    // The channel was lost meanwhile: the broker delivers the message again.
    if (held === undefined || this.#stopping.signal.aborted) return true;
    this.#waiting.delete(serverUuid);
    try {
      await this.#store(serverUuid, held.sysinfo);
      this.#acknowledge(held);
      return true;
    } catch (error) {
      const isTooOld = this.#now() - held.receivedAt >= MESSAGE_LIFETIME_MS;
      if (!isTemporary(error) || isTooOld) this.#drop(held, messageOf(error));
      else if (this.#waiting.has(serverUuid)) this.#replace(held);
      else if (held.channel === this.#channel) this.#waiting.set(serverUuid, held);
      return !isTemporary(error);
    }
  }

  #replace(held: Held): void {
    this.stats.replaced += 1;
    this.#acknowledge(held);
  }

  #drop(held: Pick<Held, 'channel' | 'message'>, reason: string): void {
    this.stats.dropped += 1;
    const routingKey = held.message.fields.routingKey.slice(0, 100);
    this.#warnings.warn({ routing_key: routingKey, reason }, 'ur: a message was dropped');
    this.#settle(held, () => held.channel.reject(held.message, false));
  }

  #acknowledge(held: Pick<Held, 'channel' | 'message'>): void {
    this.#settle(held, () => held.channel.ack(held.message));
  }

  #settle({ channel }: Pick<Held, 'channel'>, settle: () => void): void {
    if (channel !== this.#channel) return;
    this.#unacknowledged -= 1;
    try {
      settle();
    } catch {
      // The channel has just been lost: the broker delivers the message again.
    }
  }

  #now(): number {
    return this.#deps.clock.now();
  }

  /**
   * The same way as `POST /servers/:uuid/sysinfo`, except for servers that a message must not
   * change.
   */
  async #store(serverUuid: string, sysinfo: JsonObject): Promise<void> {
    try {
      const admit = (before: ServerDocument | undefined) => this.#admit(serverUuid, before);
      await this.#deps.servers.recordSysinfo(serverUuid, sysinfo, undefined, admit, async (kept) => {
        const isKept = await storeSysinfoWithoutAgent(this.#deps.database, kept, REASONS_WITHOUT_AGENT);
        if (!isKept) throw new NotOfUrError();
      });
    } catch (error) {
      if (!(error instanceof NotOfUrError)) throw error;
      this.stats.ignored += 1;
      return;
    }
    await this.#messages.ask(serverUuid);
    this.stats.stored += 1;
  }

  /**
   * The row is read after the document. An agent that connects later has changed the document
   * before this write, which then conflicts and is decided again, or changes it later. The
   * statement that stores the sysinfo looks at the row once more.
   */
  async #admit(serverUuid: string, before: ServerDocument | undefined): Promise<void> {
    if (!mayChange(before, await readRow(this.#deps.database, serverUuid))) throw new NotOfUrError();
    const refusal = before === undefined ? this.#deps.refusalOf(serverUuid) : undefined;
    if (refusal !== undefined) throw refusal;
  }

  /** What Ur says at its start may be older than what it says when it is asked. */
  async #started(serverUuid: string): Promise<void> {
    try {
      const sysinfo = await this.#deps.requestSysinfo(serverUuid);
      if (sysinfo?.UUID === serverUuid) await this.#store(serverUuid, sysinfo);
    } catch (error) {
      const fields = { server_uuid: serverUuid, reason: messageOf(error) };
      this.#warnings.warn(fields, 'ur: the sysinfo of a server was not stored');
    }
  }

  async #record(serverUuids: readonly string[], database: Parameters<typeof recordMessages>[0]) {
    const started = await recordMessages(database, this.#deps.cnapiUuid, serverUuids);
    const changes = started.map((server_uuid) => ({ server_uuid, reason: 'ur-sysinfo' }));
    this.#transitions.write(changes, 'server: unknown -> running');
    return new Map(serverUuids.map((serverUuid) => [serverUuid, true] as const));
  }
}

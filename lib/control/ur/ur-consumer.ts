/**
 * Receives what Ur publishes, from the queue that all instances share. A message is acknowledged when its effect is
 * stored, so that an instance that dies meanwhile loses nothing: the broker gives the message to another one. Storing
 * it twice is harmless. A message that nobody can use is dropped, counted and logged without its content.
 *
 *     delivered ──read──▶ storing ──stored──▶ acknowledged
 *         │                  ├──the database does not answer──▶ storing, again
 *         │                  └──refused──▶ dropped
 *         └──defect, or its server is set up or had an agent──▶ dropped
 */
import type { ConfirmChannel, ConsumeMessage } from 'amqplib';
import { type CnapiError, isTemporary, messageOf } from '../../platform/errors.ts';
import { LogLimiter } from '../../platform/limiting/log-limiter.ts';
import type { Logger } from '../../platform/log.ts';
import { Batcher } from '../../platform/postgres/batches/batcher.ts';
import type { Database } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { readRow } from '../roster/status/roster-store.ts';
import { TransitionLog } from '../roster/status/transition-log.ts';
import type { ServerDocument } from '../servers/server.ts';
import type { Servers } from '../servers/servers.ts';
import { EXCHANGE, MESSAGE_LIFETIME_MS, mayChange, readUrMessage, SHARED_BINDINGS, SHARED_QUEUE } from './ur.ts';
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
}

/** The server is set up or had an agent. */
class NotOfUrError extends Error {}

/** Messages that the broker sends before the first one is acknowledged: bounds memory and work. */
const PREFETCH = 16;
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
  readonly stats: UrConsumerStats = { received: 0, stored: 0, dropped: 0, ignored: 0 };
  readonly #deps: UrConsumerDeps;
  readonly #warnings: LogLimiter;
  readonly #transitions: TransitionLog;
  readonly #messages: Batcher<string, true>;
  readonly #working = new Set<Promise<void>>();
  #channel: ConfirmChannel | undefined;
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

  /** Consumes from a new channel. What was delivered on an earlier one, the broker delivers again. */
  async setUp(channel: ConfirmChannel): Promise<void> {
    this.#channel = channel;
    await channel.prefetch(PREFETCH);
    await channel.assertQueue(SHARED_QUEUE, QUEUE_OPTIONS);
    for (const binding of SHARED_BINDINGS) await channel.bindQueue(SHARED_QUEUE, EXCHANGE, binding);
    await channel.consume(SHARED_QUEUE, (message) => {
      // The queue was deleted: the channel is closed, and its owner sets up another one.
      if (message === null) return void channel.close().catch(() => undefined);
      const work = this.#deliver(channel, message).finally(() => this.#working.delete(work));
      this.#working.add(work);
    });
  }

  /** Call it when the connection is closed. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#channel = undefined;
    await Promise.all(this.#working);
  }

  async #deliver(channel: ConfirmChannel, message: ConsumeMessage): Promise<void> {
    this.stats.received += 1;
    const isUsed = await this.#handle(channel, message);
    if (isUsed === undefined || channel !== this.#channel) return;
    try {
      if (isUsed) channel.ack(message);
      else channel.reject(message, false);
    } catch {
      // The channel has just been lost: the broker delivers the message again.
    }
  }

  /** False: dropped. Undefined: the channel was lost meanwhile. */
  async #handle(channel: ConfirmChannel, { content, fields }: ConsumeMessage): Promise<boolean | undefined> {
    const read = readUrMessage(fields.routingKey, content);
    if ('defect' in read) return this.#drop(read.defect, fields.routingKey);
    const { kind, serverUuid, sysinfo } = read;
    while (channel === this.#channel) {
      try {
        if (kind === 'sysinfo') return await this.#store(serverUuid, sysinfo);
        void this.#started(serverUuid);
        return true;
      } catch (error) {
        if (!isTemporary(error)) return this.#drop(messageOf(error), fields.routingKey);
        await this.#deps.clock.sleep(RETRY_MS, this.#stopping.signal);
      }
    }
    return undefined;
  }

  #drop(reason: string, routingKey: string): false {
    this.stats.dropped += 1;
    this.#warnings.warn({ routing_key: routingKey.slice(0, 100), reason }, 'ur: a message was dropped');
    return false;
  }

  /** The same way as `POST /servers/:uuid/sysinfo`, except for servers that a message must not change. */
  async #store(serverUuid: string, sysinfo: JsonObject): Promise<true> {
    try {
      await this.#deps.servers.recordSysinfo(serverUuid, sysinfo, undefined, (before) =>
        this.#admit(serverUuid, before),
      );
    } catch (error) {
      if (!(error instanceof NotOfUrError)) throw error;
      this.stats.ignored += 1;
      return true;
    }
    await this.#messages.ask(serverUuid);
    this.stats.stored += 1;
    return true;
  }

  /**
   * The row is read after the document. An agent that connects later stores its own sysinfo later, or has changed
   * the document before this write, which then conflicts and is decided again.
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

/**
 * Servers that speak Ur, for the rest of an instance. Connects the parts of this folder to one
 * broker. Posts tasks that `LegacyDispatch` has claimed. Only the run named in the row posts a
 * task, and only once (docs/design/legacy-agents.md). Without `amqpUrl` no broker is used. Created
 * by `core.ts`.
 */

import { BrokerConnection } from '../../platform/amqp/broker-connection.ts';
import { type CnapiError, messageOf } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { Database } from '../../platform/postgres/database.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { HealthyTimer } from '../../platform/time/healthy-timer.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import type { TaskName } from '../../protocol/task-name.ts';
import type { LegacyAgentTask } from '../legacy/legacy-agent-api.ts';
import { failure, type PostedEnd } from '../legacy/task-answer.ts';
import type { Servers } from '../servers/servers.ts';
import { installAgent } from './agent-installer.ts';
import {
  askForSysinfo,
  badReply,
  buildExecution,
  needsAgent,
  noReply,
  REBOOT_STATUS,
  replyLost,
  type UrReply,
} from './execution.ts';
import type { UrAgentSettings } from './settings.ts';
import { EXCHANGE, parseObject } from './ur.ts';
import { UrConsumer } from './ur-consumer.ts';
import { UrPosts, type UrRun } from './ur-posts.ts';
import { UrSilenceDetector } from './ur-silence-detector.ts';

interface UrServersDeps {
  database: Database;
  cnapiUuid: string;
  servers: Pick<Servers, 'recordSysinfo' | 'update'>;
  refusalOf: (serverUuid: string) => CnapiError | undefined;
  healthyTimer: Pick<HealthyTimer, 'onTick'>;
  mayMarkOthersUnknown: () => boolean;
  config: {
    amqpUrl?: string | undefined;
    urAgent?: UrAgentSettings | undefined;
    urSilenceMs: number;
    slowPollMs: number;
  };
  clock: Clock;
  random: Random;
  log: Logger;
}

interface PostOptions {
  timeoutMs: number;
  signal: AbortSignal;
}

const SYSINFO_WITHIN_MS = 60_000;
/** Sysinfo requests at one time; Ur says its sysinfo anyway, a minute later. */
const MAX_REQUESTS = 100;
const REBOOT_RETRIES = 5;

export class UrServers {
  readonly consumer: UrConsumer;
  readonly posts: UrPosts;
  readonly silences: UrSilenceDetector;
  readonly #deps: UrServersDeps;
  readonly #connection: BrokerConnection | undefined;
  readonly #stopping = new AbortController();
  #requests = 0;

  constructor(deps: UrServersDeps) {
    this.#deps = deps;
    const { cnapiUuid, config, random } = deps;
    this.consumer = new UrConsumer({ ...deps, requestSysinfo: (serverUuid) => this.#requestSysinfo(serverUuid) });
    const offline = { channel: undefined, whenOnline: async () => undefined };
    this.posts = new UrPosts({
      ...deps,
      queue: `ur.cnapi.${cnapiUuid}.${random.uuid()}`,
      connection: () => this.#connection ?? offline,
    });
    this.silences = new UrSilenceDetector({
      ...deps,
      isListening: () => this.isOnline !== false,
      isBehind: () => this.consumer.isBehind,
    });
    this.#connection =
      config.amqpUrl === undefined
        ? undefined
        : new BrokerConnection({
            ...deps,
            url: config.amqpUrl,
            name: `cnapi ${cnapiUuid}`,
            setUp: async (channel) => {
              await this.consumer.setUp(channel);
              await this.posts.setUp(channel);
            },
            probe: { exchange: EXCHANGE, routingKey: `cnapi.${cnapiUuid}` },
          });
  }

  /**
   * Whether the broker can be used, so that messages of Ur can arrive; undefined if none is
   * configured.
   */
  get isOnline(): boolean | undefined {
    return this.#connection === undefined ? undefined : this.#connection.channel !== undefined;
  }

  /** Connections to the broker that were opened so far. */
  get connects(): number {
    return this.#connection?.connects ?? 0;
  }

  start(): void {
    this.#connection?.start();
    this.silences.start();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.posts.stop();
    await this.#connection?.stop();
    await Promise.all([this.consumer.stop(), this.silences.stop()]);
  }

  /** Sends the task to the server's Ur. Settles as `LegacyAgentApi.post`, but may reject. */
  async post(task: LegacyAgentTask, options: PostOptions): Promise<PostedEnd> {
    const { serverUuid, name, params } = task;
    if (name === ('agent_install' satisfies TaskName)) return this.#installAgent(task, options);
    const execution = buildExecution(name, params);
    if (execution === undefined) return needsAgent(serverUuid, name);
    const { message, waitMs = options.timeoutMs } = execution;
    const ran = await this.#run(task, message, { ...options, timeoutMs: Math.min(waitMs, options.timeoutMs) });
    if ('outcome' in ran) return ran;
    if (ran.reply.exitStatus === REBOOT_STATUS) await this.#noteReboot(serverUuid);
    return execution.endOf(ran.reply);
  }

  #installAgent(task: LegacyAgentTask, options: PostOptions): Promise<PostedEnd> {
    const { config, random } = this.#deps;
    let runs = 0;
    const run = (message: JsonObject, waitMs: number) => {
      // A second script must not be answered by a late reply to the first one.
      const id = runs++ === 0 ? task.id : random.uuid();
      return this.#run({ ...task, id }, message, { ...options, timeoutMs: waitMs });
    };
    return installAgent({ ...this.#deps, settings: config.urAgent, run }, task, options);
  }

  /** Has Ur run this once. Without a reply, returns the end of the task. */
  async #run(
    { id, serverUuid }: Pick<LegacyAgentTask, 'id' | 'serverUuid'>,
    message: JsonObject,
    { timeoutMs: waitMs, signal }: PostOptions,
  ): Promise<{ reply: UrReply } | PostedEnd> {
    const outcome = await this.posts.run({ id, serverUuid, message, waitMs, signal });
    switch (outcome.kind) {
      case 'replied':
        return { reply: outcome.reply };
      case 'bad-reply':
        return badReply(outcome.reason);
      case 'timed-out':
        return noReply;
      case 'offline':
        return failure('AgentUnreachable', 'the AMQP broker cannot be used; the script was not sent');
      case 'nobody':
        return failure('AgentUnreachable', 'no Ur of this server listens to the AMQP broker; the script was not sent');
      case 'unconfirmed':
        return replyLost('the AMQP broker was lost before it confirmed the script');
      case 'given-up':
        return replyLost('the instance that had sent the script to Ur stopped');
      default:
        return outcome satisfies never;
    }
  }

  async #noteReboot(serverUuid: string): Promise<void> {
    try {
      await this.#deps.servers.update(serverUuid, { transitional_status: 'rebooting' }, REBOOT_RETRIES);
    } catch (error) {
      const fields = { server_uuid: serverUuid, reason: messageOf(error) };
      this.#deps.log.warn(fields, 'ur: could not store that a server reboots');
    }
  }

  /** Undefined: there is no answer; Ur says its sysinfo again by itself. */
  async #requestSysinfo(serverUuid: string): Promise<JsonObject | undefined> {
    if (this.#requests >= MAX_REQUESTS) return undefined;
    this.#requests += 1;
    try {
      const run: UrRun = {
        id: this.#deps.random.uuid(),
        serverUuid,
        message: askForSysinfo,
        waitMs: SYSINFO_WITHIN_MS,
        signal: this.#stopping.signal,
      };
      const outcome = await this.posts.run(run);
      if (outcome.kind !== 'replied') return undefined;
      const parsed = parseObject(Buffer.from(outcome.reply.stdout));
      return 'value' in parsed ? parsed.value : undefined;
    } finally {
      this.#requests -= 1;
    }
  }
}

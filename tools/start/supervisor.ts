/**
 * Brings a whole cnapi up on this machine and keeps it up: Postgres, Redis if available, the name
 * server, the instances, the agent for this machine and a simulated fleet, each as a child.
 *
 *      new ──start()──▶ starting ──all answer──▶ up ──stop()──▶ stopped
 *
 * If `start()` fails, the caller calls `stop()`. A child that ends while starting up makes
 * `start()` fail with its last words; later it is restarted. When everything is up, the instances
 * can be scaled and restarted one after the other (`operate`).
 */
import { mkdirSync } from 'node:fs';
import { configFolder } from '../../lib/client/credentials.ts';
import { announceLocal, withdrawLocal } from '../../lib/client/local-cnapi.ts';
import { messageOf } from '../../lib/platform/errors.ts';
import type { Random } from '../../lib/platform/random.ts';
import type { Clock } from '../../lib/platform/time/clock.ts';
import type { Ready, ReadyInstance } from './banner.ts';
import { Children } from './children.ts';
import type { Operation } from './control.ts';
import { checkDatabase, checkRedis } from './external-services.ts';
import { Instances } from './instances.ts';
import { processList } from './leftovers.ts';
import { instanceLimits, type Options } from './options.ts';
import { isListening } from './ports.ts';
import { isPostgresReady, preparePostgres } from './postgres.ts';
import {
  agentCommand,
  fleetCommand,
  imageFolder,
  instanceCommand,
  nameServerCommand,
  serviceName,
} from './programs.ts';
import { areNamed, containersOf, serverUuidOf, untilServerRuns, untilServersRun } from './readiness.ts';
import { findRedisProgram, prepareRedis } from './redis.ts';
import { Refusal } from './refusal.ts';
import { authorizationFrom, keepTokens, type TokenFiles, tokenFiles } from './tokens.ts';
import { WatchdogClient } from './watchdog-client.ts';

export interface SupervisorDeps {
  options: Options;
  data: string;
  clock: Clock;
  random: Random;
  /** Prints progress for people. */
  say: (text: string) => void;
}

interface AgentsPlan {
  dns: string;
  instances: readonly ReadyInstance[];
  tokens: TokenFiles | undefined;
}

/** Enough for the maximum number of instances, because their number can grow after the start. */
const databaseConnections = 40 + 25 * instanceLimits[1];

export class Supervisor {
  readonly #options: Options;
  readonly #data: string;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #say: (text: string) => void;
  readonly #watch: WatchdogClient;
  readonly #children: Children;
  readonly #stopping = new AbortController();
  #instances: Instances | undefined;
  /** Set when the tokens can be used. */
  #tokenFile: string | undefined;
  #urls: readonly string[] = [];
  #stopped: Promise<void> | undefined;

  constructor({ options, data, clock, random, say }: SupervisorDeps) {
    this.#options = options;
    this.#data = data;
    this.#clock = clock;
    this.#random = random;
    this.#say = say;
    this.#watch = new WatchdogClient(processList(data), clock);
    this.#children = new Children({ data, watch: this.#watch, clock, stopping: this.#stopping.signal, say });
  }

  /**
   * Resolves when everything answers; to undefined when stopped before.
   * @throws Refusal or system errors
   */
  async start(): Promise<Ready | undefined> {
    this.#watch.start();
    this.#withdraw();
    const [databaseUrl, redisUrl] = await Promise.all([this.#startDatabase(), this.#startRedis()]);
    if (this.#isStopping) return undefined;
    const [instances, dns, tokens] = await Promise.all([
      this.#startInstances(databaseUrl, redisUrl),
      this.#startNameServer(databaseUrl),
      this.#keepTokens(databaseUrl),
    ]);
    if (this.#isStopping) return undefined;
    this.#tokenFile = tokens?.operator;
    this.#announce(this.#urls);
    const agent = await this.#startAgents({ dns, instances, tokens });
    if (this.#isStopping) return undefined;
    return {
      ready: true,
      pid: process.pid,
      instances,
      dns,
      bus: redisUrl === undefined ? 'postgres' : 'redis',
      ...(agent === undefined ? {} : { agent }),
      ...(tokens === undefined ? {} : { token_file: tokens.operator }),
    };
  }

  /**
   * Carries out the operation of `npm start -- --scale` or similar; resolves to a description of
   * the resulting state.
   * @throws Refusal
   */
  async operate(operation: Operation, report: (text: string) => void): Promise<string> {
    const instances = this.#instances;
    if (instances === undefined) throw new Refusal('the instances are still starting; try again when they are up');
    const say = (text: string) => {
      this.#say(text);
      report(text);
    };
    switch (operation.operation) {
      case 'scale':
        return instances.scale(operation.instances, say);
      case 'rolling-restart':
        return instances.restartEach(say);
      default:
        return operation satisfies never;
    }
  }

  /** Ends all children in order. Further calls do nothing. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #stop(): Promise<void> {
    this.#stopping.abort();
    this.#withdraw();
    await this.#children.stop();
    await this.#watch.close();
    this.#children.closeLogs();
  }

  async #startDatabase(): Promise<string> {
    const { databaseUrl } = this.#options;
    if (databaseUrl !== undefined) {
      await checkDatabase(databaseUrl);
      return databaseUrl;
    }
    const postgres = await preparePostgres(this.#data, databaseConnections, this.#say);
    const child = this.#children.run({
      name: 'postgres',
      rank: 'postgres',
      signal: 'SIGINT',
      command: postgres.command,
    });
    await this.#children.untilUp(child, () => isPostgresReady(postgres, child.pid));
    return postgres.url;
  }

  async #startRedis(): Promise<string | undefined> {
    if (this.#options.redisUrl !== undefined) {
      await checkRedis(this.#options.redisUrl);
      return this.#options.redisUrl;
    }
    const program = findRedisProgram();
    if (program === undefined) {
      this.#say('no redis-server or valkey-server on the PATH: the bus is Postgres LISTEN/NOTIFY');
      return undefined;
    }
    const redis = await prepareRedis(this.#data, program);
    const child = this.#children.run({ name: redis.program, rank: 'redis', command: redis.command });
    await this.#children.untilUp(child, () => isListening(redis.port));
    return redis.url;
  }

  async #startInstances(databaseUrl: string, redisUrl: string | undefined): Promise<ReadyInstance[]> {
    const { instances: count, port: firstPort } = this.#options;
    const access = this.#options.open ? 'open' : 'tokens';
    const instances = new Instances({
      data: this.#data,
      children: this.#children,
      firstPort,
      namesPort: firstPort + count,
      serviceName,
      commandFor: (plan) => instanceCommand(this.#data, { ...plan, databaseUrl, redisUrl, access }),
      headers: () => this.#headers,
      onUrls: (urls) => this.#announce(urls),
      say: this.#say,
      clock: this.#clock,
      random: this.#random,
      stopping: this.#stopping.signal,
    });
    this.#say(`starting ${count === 1 ? 'one instance' : `${count} instances`}`);
    const started = await instances.start(count);
    this.#instances = instances;
    return started;
  }

  async #startNameServer(databaseUrl: string): Promise<string> {
    const { port: firstPort, instances } = this.#options;
    const port = firstPort + instances;
    const ports = Array.from({ length: instances }, (_, index) => firstPort + index);
    const command = nameServerCommand(this.#data, port, databaseUrl);
    const child = this.#children.run({ name: 'name-server', rank: 'names', command: () => command });
    const dns = `127.0.0.1:${port}`;
    await this.#children.untilUp(child, () => areNamed(dns, serviceName, ports));
    return dns;
  }

  /** Returns undefined with `--open`. */
  async #keepTokens(databaseUrl: string): Promise<TokenFiles | undefined> {
    return this.#options.open ? undefined : keepTokens(this.#data, databaseUrl);
  }

  get #headers(): Record<string, string> {
    return this.#options.open ? {} : authorizationFrom(tokenFiles(this.#data).operator);
  }

  /**
   * Lets this user's `cnapi` find the instances and the token. If this fails everything still
   * works, but the caller must name them.
   */
  #announce(urls: readonly string[]): void {
    this.#urls = urls;
    const tokenFile = this.#tokenFile;
    if ((tokenFile === undefined && !this.#options.open) || this.#isStopping) return;
    try {
      announceLocal(configFolder(process.env), this.#data, { pid: process.pid, urls, tokenFile });
    } catch (error) {
      const token = tokenFile === undefined ? '' : ` CNAPI_TOKEN_FILE=${tokenFile}`;
      this.#say(`cnapi will not find this by itself (${messageOf(error)}): set CNAPI_URL=${urls[0]}${token}`);
    }
  }

  #withdraw(): void {
    try {
      withdrawLocal(configFolder(process.env), this.#data);
    } catch {
      // The file is ignored after this process has ended.
    }
  }

  /** Resolves when all their servers run, or no more of them come. */
  async #startAgents(plan: AgentsPlan): Promise<Ready['agent']> {
    const own = await this.#runAgents(plan);
    const count = this.#options.agents + (this.#options.agent ? 1 : 0);
    const { instances } = plan;
    const say = (running: number) => this.#say(`${running} of ${count} servers run`);
    const question = { url: instances[0]?.url ?? '', instances, count, headers: this.#headers, onProgress: say };
    const stopping = this.#stopping.signal;
    const running = await untilServersRun({ ...question, clock: this.#clock, signal: stopping });
    if (running < count && !this.#isStopping) say(running);
    return own;
  }

  async #runAgents({ dns, instances, tokens }: AgentsPlan): Promise<Ready['agent']> {
    const { agent, agents, containers } = this.#options;
    if (agent || agents > 0) this.#say('starting agents');
    if (agents > 0) {
      const fleet = fleetCommand(this.#data, { dns, agents, tokenFile: tokens?.agents });
      this.#children.run({ name: 'fleet', rank: 'agents', command: () => fleet }).keepUp();
    }
    if (!agent) return undefined;
    if (containers) mkdirSync(imageFolder(this.#data), { recursive: true, mode: 0o700 });
    const command = agentCommand(this.#data, { dns, tokenFile: tokens?.agents, containers });
    const child = this.#children.run({ name: 'agent', rank: 'agents', command: () => command });
    await this.#children.untilUp(child, async () => serverUuidOf(this.#data) !== undefined);
    const uuid = serverUuidOf(this.#data) ?? '';
    const url = instances[0]?.url ?? '';
    const question = { url, uuid, headers: this.#headers, clock: this.#clock, signal: this.#stopping.signal };
    const runs = await untilServerRuns(question);
    const said = containers && runs ? await containersOf(question) : undefined;
    return { server_uuid: uuid, pid: child.pid ?? 0, ...(said !== undefined && { containers: said }) };
  }

  get #isStopping(): boolean {
    return this.#stopping.signal.aborted;
  }
}

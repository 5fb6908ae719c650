/**
 * A whole zone of real processes for the fault tests: its own Postgres and Redis, instances, real
 * agents and a simulated fleet. Each process can be killed, frozen, thawed and restarted. Agents
 * can reach instances, and instances the database, through proxies that can be cut. Ports are free
 * ones and stay the same over restarts. The zone ends with the test, and shows the logs if the test
 * failed.
 */
import { randomInt, randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { silentLogger } from '../../lib/platform/log.ts';
import { DatabaseClient } from '../../lib/platform/postgres/client.ts';
import { DatabaseHosts } from '../../lib/platform/postgres/hosts.ts';
import { ownProgram, Program } from '../../tools/processes/program.ts';
import type { Command } from '../../tools/start/child.ts';
import { CuttableProxy } from './cuttable-proxy.ts';
import { startTestPostgres, type TestPostgres, type TestPostgresOptions } from './postgres-server.ts';
import { startTestRedis, type TestRedis } from './redis.ts';
import { until } from './until.ts';

export interface ZonePlan {
  instances?: number;
  /** Number of real agents. */
  agents?: number;
  simulated?: number;
  /** This many of the simulated agents post heartbeats, as legacy agents do. */
  old?: number;
  /** Agents reach instances through proxies. */
  proxied?: boolean;
  /** Instances reach the database through proxies. */
  databaseProxied?: boolean;
  /** Instances reach Redis through proxies. */
  busProxied?: boolean;
  /** Callers can reach instances through proxies, at `callerUrl`. */
  callersProxied?: boolean;
  /** Folder for logs and data, which stays. Default: a new folder, removed when the test passed. */
  directory?: string;
  /** Default: Redis. */
  bus?: 'redis' | 'postgres';
  /** Arguments of Node for instances. */
  instanceArgs?: readonly string[];
  /** Overrides the defaults of every instance, which are those of the product. */
  config?: Record<string, unknown>;
  postgres?: TestPostgresOptions;
  /** An existing database, instead of one of the zone's own. */
  databaseUrl?: string;
}

/** The part of a tap test that is used here. */
interface Test {
  teardown(work: () => unknown): void;
  passing(): boolean;
  comment(...text: unknown[]): void;
}

export interface Instance {
  uuid: string;
  url: string;
  /** Where agents are sent; differs from `url` when proxied. */
  agentUrl: string;
  /** Where callers are sent; differs from `url` when proxied. */
  callerUrl: string;
  program: Program;
  proxy: CuttableProxy | undefined;
  databaseProxy: CuttableProxy | undefined;
  busProxy: CuttableProxy | undefined;
  callerProxy: CuttableProxy | undefined;
}

export interface RealAgent {
  serverUuid: string;
  data: string;
  program: Program;
}

/** Starts everything and waits until every server is `running`. */
export async function startZone(t: Test, plan: ZonePlan = {}): Promise<Zone> {
  const [postgres, redis] = await Promise.all([
    plan.databaseUrl === undefined ? startTestPostgres(plan.postgres) : undefined,
    startTestRedis(),
  ]);
  const zone = new Zone(plan, { postgres, redis });
  t.teardown(async () => {
    if (!t.passing()) for (const line of zone.story()) t.comment(line);
    await zone.stop(t.passing());
  });
  await zone.start();
  return zone;
}

export class Zone {
  readonly instances: Instance[] = [];
  readonly agents: RealAgent[] = [];
  readonly directory: string;
  fleet: Program | undefined;
  readonly #plan: ZonePlan;
  readonly #postgres: TestPostgres | undefined;
  readonly #redis: TestRedis | undefined;
  readonly #databaseUrl: string;
  readonly #pool: pg.Pool;
  readonly #programs = new Map<Program, (root: string | undefined) => Command>();

  /** Without a Redis the instances use the database as their bus. */
  constructor(
    plan: ZonePlan,
    { postgres, redis }: { postgres: TestPostgres | undefined; redis: TestRedis | undefined },
  ) {
    this.#plan = plan;
    this.directory = plan.directory ?? mkdtempSync(path.join(os.tmpdir(), 'cnapi-faults-'));
    this.#postgres = postgres;
    this.#redis = redis;
    this.#databaseUrl = plan.databaseUrl ?? this.postgres.url;
    const hosts = new DatabaseHosts(this.#databaseUrl, silentLogger);
    const settings = { connectionTimeoutMillis: 3_000, query_timeout: 5_000 };
    class Client extends DatabaseClient {
      constructor() {
        super(hosts, settings);
      }
    }
    this.#pool = new pg.Pool({ ...settings, Client, max: 3 });
    this.#pool.on('error', () => undefined);
    // A connection that is in use when its server stops also fails its query.
    this.#pool.on('connect', (client) => client.on('error', () => undefined));
  }

  /** The Redis of the zone. */
  get redis(): TestRedis {
    if (this.#redis === undefined) throw new Error('this zone has no Redis');
    return this.#redis;
  }

  /** The Postgres of the zone. */
  get postgres(): TestPostgres {
    if (this.#postgres === undefined) throw new Error('this zone was given a database');
    return this.#postgres;
  }

  /** The uuids of all servers, real ones first. */
  get serverUuids(): Promise<string[]> {
    return this.sql<{ uuid: string }>('select server_uuid as uuid from cnapi_roster_authority').then((rows) => {
      const real = this.agents.map(({ serverUuid }) => serverUuid);
      return [...real, ...rows.map(({ uuid }) => uuid).filter((uuid) => !real.includes(uuid))];
    });
  }

  async start(): Promise<void> {
    const { instances = 3, agents = 2, simulated = 10 } = this.#plan;
    for (let each = 0; each < instances; each++) await this.addInstance();
    await Promise.all(this.instances.map((instance) => this.ready(instance)));
    for (let each = 0; each < agents; each++) this.addAgent();
    if (simulated > 0) {
      const { old } = this.#plan;
      const legacy = old === undefined ? [] : ['--legacy', String(old)];
      this.fleet = this.fleetOf('fleet', ['--agents', String(simulated), '--seed', this.#seed, ...legacy]);
      this.fleet.start();
    }
    await this.untilRunning(agents + simulated);
  }

  /** Starts a real agent; by default for a new server, with a new data directory. */
  addAgent(
    serverUuid: string = randomUUID(),
    instances: readonly Instance[] = this.instances,
    { data: given, options = [] }: { data?: string; options?: readonly string[] } = {},
  ): RealAgent {
    const name = `agent-${this.agents.length}`;
    const data = given ?? path.join(this.directory, name);
    const urls = instances.flatMap(({ agentUrl }) => ['--url', agentUrl]);
    const args = [...urls, '--data', data, '--uuid', serverUuid, ...options];
    const agent = { serverUuid, data, program: this.#program(name, 'lib/agent/main.ts', args) };
    this.agents.push(agent);
    agent.program.start();
    return agent;
  }

  /** Simulated agents in a process of their own, which is not started yet. */
  fleetOf(name: string, options: readonly string[]): Program {
    const urls = this.instances.flatMap(({ agentUrl }) => ['--url', agentUrl]);
    return this.#program(name, 'lib/agent/simulated/main.ts', [...options, ...urls]);
  }

  /**
   * Starts the program from that version's folder from its next start on; default: this version.
   */
  useVersion(program: Program, root?: string): void {
    const commandOf = this.#programs.get(program);
    if (commandOf === undefined) throw new Error(`${program.name} is none of this zone`);
    program.become(commandOf(root));
  }

  /** Resolves when the instance accepts agents and callers. */
  async ready({ url, program }: Instance): Promise<void> {
    await until(async () => {
      if (!program.isAlive) throw new Error(`${program.name} ended: ${program.log().at(-1)?.msg}`);
      return (await statusOf(`${url}/ready`)) === 200;
    }, `${program.name} to be ready`);
  }

  /** Resolves when that many servers are known and `running`, according to the first instance. */
  async untilRunning(count: number): Promise<void> {
    const url = `${this.instances[0]?.url}/servers?extras=status`;
    await until(async () => {
      const servers = (await (await fetch(url)).json()) as { status: string }[];
      return servers.filter(({ status }) => status === 'running').length >= count;
    }, `${count} servers to be running`);
  }

  /** The instance that holds the server now, according to the roster. */
  async holderOf(serverUuid: string): Promise<Instance> {
    const [row] = await this.sql<{ uuid: string }>(
      `select cnapi_uuid as uuid from cnapi_roster_authority where server_uuid = $1`,
      [serverUuid],
    );
    const holder = this.instances.find(({ uuid }) => uuid === row?.uuid);
    if (holder === undefined) throw new Error(`no instance holds ${serverUuid}`);
    return holder;
  }

  async sql<Row extends object>(text: string, values: unknown[] = []): Promise<Row[]> {
    return (await this.#pool.query<Row>(text, values)).rows;
  }

  /** The end of every log, to explain a failed test. */
  story(): string[] {
    const heads = [`logs and data are kept in ${this.directory}`];
    return heads.concat(
      [...this.#programs.keys()].flatMap((program) => [`--- ${program.name}`, ...lastLines(program)]),
    );
  }

  async stop(isClean = true): Promise<void> {
    await Promise.all([...this.#programs.keys()].map((program) => program.kill()));
    const proxiesOf = (each: Instance) => [each.proxy, each.databaseProxy, each.busProxy, each.callerProxy];
    await Promise.all(this.instances.flatMap(proxiesOf).map((proxy) => proxy?.stop()));
    await this.#pool.end();
    await Promise.all([this.#postgres?.close(), this.#redis?.stop()]);
    if (isClean && this.#plan.directory === undefined) rmSync(this.directory, { recursive: true, force: true });
  }

  /** Starts one more instance; agents learn of it from the others. */
  async addInstance(): Promise<Instance> {
    const [uuid, number, host, port] = [randomUUID(), this.instances.length, '127.0.0.1', await freePort()];
    const { proxied, databaseProxied, busProxied, callersProxied, config } = this.#plan;
    const advertiseHost = proxied ? `127.0.2.${number + 1}` : host;
    const between = async (wanted: boolean | undefined, targetPort: number, at = { host, port: 0 }) =>
      wanted ? await CuttableProxy.start({ ...at, target: { host, port: targetPort } }) : undefined;
    const proxies = {
      proxy: await between(proxied, port, { host: advertiseHost, port }),
      databaseProxy: databaseProxied ? await between(true, this.postgres.port) : undefined,
      busProxy: busProxied && this.#redis ? await between(true, this.#redis.port) : undefined,
      callerProxy: await between(callersProxied, port),
    };
    const file = path.join(this.directory, `instance-${number}.json`);
    const settings = { cnapiUuid: uuid, host, port, advertiseHost, ...this.#connections(proxies), ...config };
    writeFileSync(file, JSON.stringify(settings));
    const { instanceArgs = [] } = this.#plan;
    const program = this.#program(`instance-${number}`, 'server.ts', ['--config', file], instanceArgs);
    const urls = {
      url: `http://${host}:${port}`,
      agentUrl: `http://${advertiseHost}:${port}`,
      callerUrl: `http://${host}:${proxies.callerProxy?.port ?? port}`,
    };
    const instance = { uuid, ...urls, program, ...proxies };
    this.instances.push(instance);
    program.start();
    return instance;
  }

  #connections({ databaseProxy, busProxy }: Pick<Instance, 'databaseProxy' | 'busProxy'>): Record<string, unknown> {
    const at = (url: string, proxy: CuttableProxy | undefined) =>
      proxy === undefined ? url : Object.assign(new URL(url), { port: proxy.port }).href;
    const databaseUrl = at(this.#databaseUrl, databaseProxy);
    const isOwnBus = this.#plan.bus === 'postgres' || this.#redis === undefined;
    const bus = isOwnBus ? {} : { redisUrl: at(this.redis.url, busProxy) };
    return { databaseUrl, databasePoolSize: 5, ...bus };
  }

  get #seed(): string {
    return path.basename(this.directory);
  }

  #program(name: string, file: string, args: readonly string[], nodeArgs: readonly string[] = []): Program {
    const commandOf = (root: string | undefined) => ownProgram(file, args, nodeArgs, root);
    const program = new Program({
      name,
      command: commandOf(undefined),
      logFile: path.join(this.directory, `${name}.log`),
    });
    this.#programs.set(program, commandOf);
    return program;
  }
}

export async function statusOf(url: string): Promise<number | undefined> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(3_000) });
    await response.arrayBuffer();
    return response.status;
  } catch {
    return undefined;
  }
}

/** Messages that occur in every log and say nothing about a fault. */
const everyday = new Set(['request', 'task: ended']);

function lastLines(program: Program): string[] {
  const lines = program.log().filter(({ msg }) => !everyday.has(msg));
  return lines.slice(-25).map(({ hostname: _hostname, v: _v, name: _name, ...line }) => JSON.stringify(line));
}

/**
 * A port below the range that the system uses for outgoing connections, so it stays free over a
 * restart.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(18_000, 32_000);
    if (await isFree(port)) return port;
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}

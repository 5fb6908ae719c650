/**
 * The services of a whole run: a Postgres configured as by `npm start`, and a bus. Each is the
 * given one or the benchmark's own. Zones get their own databases in it.
 */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { messageOf } from '../../lib/platform/errors.ts';
import { systemRandom } from '../../lib/platform/random.ts';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import { Program } from '../processes/program.ts';
import { makePlace } from '../start/place.ts';
import { isListening } from '../start/ports.ts';
import { isPostgresReady, preparePostgres } from '../start/postgres.ts';
import { findRedisProgram, prepareRedis } from '../start/redis.ts';

export interface FoundationPlan {
  /** The folder for data; other users must be able to pass through it. */
  directory: string;
  databaseUrl: string | undefined;
  redisUrl: string | undefined;
  /** Default: Redis if available. */
  bus: 'redis' | 'postgres' | undefined;
  say(text: string): void;
}

/** The given database does not answer; the message says why. */
export class NoDatabaseError extends Error {}

const MAX_CONNECTIONS = 300;
const START_WITHIN_MS = 60_000;

export class Foundation {
  readonly #plan: FoundationPlan;
  readonly #programs: Program[] = [];
  #databaseUrl = '';
  #redisUrl: string | undefined;

  constructor(plan: FoundationPlan) {
    this.#plan = plan;
  }

  /** URL of a database that exists from the beginning. */
  get databaseUrl(): string {
    return this.#databaseUrl;
  }

  get redisUrl(): string | undefined {
    return this.#redisUrl;
  }

  get bus(): 'redis' | 'postgres' {
    return this.#redisUrl === undefined ? 'postgres' : 'redis';
  }

  /** Where our own Postgres stores its data; the floor of `fdatasync` uses the same folder. */
  get directory(): string {
    return this.#plan.directory;
  }

  /** The log of our own Postgres; undefined when the database was given. */
  get postgresLog(): string | undefined {
    return this.#plan.databaseUrl === undefined ? path.join(this.#plan.directory, 'log', 'postgres.log') : undefined;
  }

  /** True when the Redis is our own, so that its settings may be changed temporarily. */
  get isRedisOurs(): boolean {
    return this.#redisUrl !== undefined && this.#plan.redisUrl === undefined;
  }

  /** Processes of Postgres and Redis that are our own. */
  get pids(): number[] {
    return this.#programs.map(({ pid }) => pid);
  }

  async start(): Promise<void> {
    const { directory, databaseUrl, redisUrl, bus } = this.#plan;
    makePlace({ data: directory, instead: undefined });
    this.#databaseUrl = databaseUrl ?? (await this.#startPostgres());
    if (databaseUrl !== undefined) await this.#expectAnswer();
    if (bus !== 'postgres') this.#redisUrl = redisUrl ?? (await this.#startRedis());
  }

  /** Ends everything immediately; nothing of it is needed again. */
  async stop(): Promise<void> {
    await Promise.all(this.#programs.map((program) => program.kill('SIGQUIT')));
  }

  /** Creates an empty database; returns its URL. */
  async createDatabase(): Promise<string> {
    const name = `cnapi_bench_${systemRandom.uuid().slice(0, 8)}`;
    await this.sql(`create database ${name}`);
    return Object.assign(new URL(this.#databaseUrl), { pathname: `/${name}` }).href;
  }

  async dropDatabase(url: string): Promise<void> {
    await this.sql(`drop database ${new URL(url).pathname.slice(1)} with (force)`);
  }

  /** Runs a statement in `databaseUrl` on a new connection. */
  async sql<Row extends object>(text: string): Promise<Row[]> {
    const client = new pg.Client({ connectionString: this.#databaseUrl });
    client.on('error', () => undefined);
    await client.connect();
    try {
      return (await client.query<Row>(text)).rows;
    } finally {
      await client.end();
    }
  }

  async #expectAnswer(): Promise<void> {
    try {
      await this.sql('select 1');
    } catch (error) {
      throw new NoDatabaseError(`the database of --database-url does not answer: ${messageOf(error)}`);
    }
  }

  async #startPostgres(): Promise<string> {
    const { directory, say } = this.#plan;
    const postgres = await preparePostgres(directory, MAX_CONNECTIONS, say);
    const program = this.#start('postgres', postgres.command());
    await this.#until(program, () => isPostgresReady(postgres, program.pid));
    return postgres.url;
  }

  async #startRedis(): Promise<string | undefined> {
    const file = findRedisProgram();
    if (file === undefined) {
      if (this.#plan.bus === 'redis') throw new Error('there is no redis-server or valkey-server on the PATH');
      return undefined;
    }
    const redis = await prepareRedis(this.#plan.directory, file);
    const program = this.#start('redis', redis.command());
    await this.#until(program, () => isListening(redis.port));
    return redis.url;
  }

  #start(name: string, command: ConstructorParameters<typeof Program>[0]['command']): Program {
    const logFile = path.join(this.#plan.directory, 'log', `${name}.log`);
    const program = new Program({ name, command, logFile });
    this.#programs.push(program);
    program.start();
    return program;
  }

  async #until(program: Program, isUp: () => Promise<boolean>): Promise<void> {
    for (const deadline = clock.now() + START_WITHIN_MS; !(await isUp()); await clock.sleep(25)) {
      if (program.isAlive && clock.now() < deadline) continue;
      const file = path.join(this.#plan.directory, 'log', `${program.name}.log`);
      throw new Error(
        `${program.name} does not come up: ${existsSync(file) ? readFileSync(file, 'utf8').slice(-500) : ''}`,
      );
    }
  }
}

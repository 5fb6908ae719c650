/**
 * Brings a whole cnapi up on this machine and keeps it up: Postgres, Redis if there is one, the name server, the
 * instances, the agent for this machine and a simulated fleet, each a child of its own.
 *
 *     new ──start()──▶ starting ──all answer──▶ up ──stop()──▶ stopped      (start() fails: the caller calls stop())
 *
 * A child that dies while starting up makes `start()` fail with its last words; later it is started again.
 */
import path from 'node:path';
import type { Clock } from '../../lib/ports/clock.ts';
import type { Random } from '../../lib/ports/random.ts';
import type { Ready, ReadyInstance } from './banner.ts';
import { Child, type Command } from './child.ts';
import { endInOrder, type Rank } from './ending.ts';
import { checkDatabase, checkRedis } from './given.ts';
import { instanceUuids } from './keepsakes.ts';
import type { Options } from './options.ts';
import { isListening } from './ports.ts';
import { isPostgresReady, preparePostgres } from './postgres.ts';
import { agentCommand, fleetCommand, instanceCommand, nameServerCommand, serviceName } from './programs.ts';
import { answersReady, instancesNamedBy, serverUuidOf, untilServerRuns } from './readiness.ts';
import { findRedisProgram, prepareRedis } from './redis.ts';
import { Refusal } from './refusal.ts';
import { RotatingLog } from './rotating-log.ts';
import { leftovers, Watch } from './watch.ts';

export interface SupervisorDependencies {
  options: Options;
  data: string;
  clock: Clock;
  random: Random;
  /** Progress, for people. */
  say: (text: string) => void;
}

interface Wanted {
  name: string;
  rank: Rank;
  signal?: NodeJS.Signals;
  command: () => Command;
}

const startLimitMs = 60_000;
const pollMs = 25;

export class Supervisor {
  readonly #options: Options;
  readonly #data: string;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #say: (text: string) => void;
  readonly #watch: Watch;
  readonly #watchFile: string;
  readonly #children: Child[] = [];
  readonly #logs: RotatingLog[] = [];
  readonly #stopping = new AbortController();
  #stopped: Promise<void> | undefined;

  constructor({ options, data, clock, random, say }: SupervisorDependencies) {
    this.#options = options;
    this.#data = data;
    this.#clock = clock;
    this.#random = random;
    this.#say = say;
    this.#watchFile = path.join(data, 'config', 'processes.json');
    this.#watch = new Watch(this.#watchFile, clock);
  }

  /** What a supervisor and watchdog that were both killed have left running here. */
  async endLeftovers(): Promise<void> {
    const left = leftovers(this.#watchFile);
    if (left.length === 0) return;
    this.#say(`ending what an earlier run left behind: ${left.map(({ name }) => name).join(', ')}`);
    await endInOrder(left, this.#clock);
  }

  /** Resolves when everything answers; undefined when stopped before. @throws Refusal or system errors */
  async start(): Promise<Ready | undefined> {
    this.#watch.start();
    const [databaseUrl, redisUrl] = await Promise.all([this.#startDatabase(), this.#startRedis()]);
    if (this.#isStopping) return undefined;
    const [instances, dns] = await Promise.all([
      this.#startInstances(databaseUrl, redisUrl),
      this.#startNameServer(databaseUrl),
    ]);
    if (this.#isStopping) return undefined;
    const agent = await this.#startAgents(dns, instances[0]?.url ?? '');
    if (this.#isStopping) return undefined;
    const bus = redisUrl === undefined ? 'postgres' : 'redis';
    return { ready: true, pid: process.pid, instances, dns, bus, ...(agent === undefined ? {} : { agent }) };
  }

  /** Ends all children in order. Again is harmless. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #stop(): Promise<void> {
    this.#stopping.abort();
    for (const child of this.#children) child.retire();
    await endInOrder(this.#watch.endings, this.#clock);
    await this.#watch.close();
    for (const log of this.#logs) log.close();
  }

  async #startDatabase(): Promise<string> {
    const { databaseUrl, instances } = this.#options;
    if (databaseUrl !== undefined) {
      await checkDatabase(databaseUrl);
      return databaseUrl;
    }
    const postgres = await preparePostgres(this.#data, 40 + 25 * instances, this.#say);
    const child = this.#run({ name: 'postgres', rank: 'postgres', signal: 'SIGINT', command: postgres.command });
    await this.#untilUp(child, () => isPostgresReady(postgres, child.pid));
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
    const child = this.#run({ name: redis.program, rank: 'redis', command: redis.command });
    await this.#untilUp(child, () => isListening(redis.port));
    return redis.url;
  }

  #startInstances(databaseUrl: string, redisUrl: string | undefined): Promise<ReadyInstance[]> {
    const uuids = instanceUuids(this.#data, this.#options.instances, this.#random);
    this.#say(`starting ${uuids.length === 1 ? 'one instance' : `${uuids.length} instances`}`);
    return Promise.all(
      uuids.map(async (uuid, index) => {
        const port = this.#options.port + index;
        const url = `http://127.0.0.1:${port}`;
        const command = instanceCommand(this.#data, { cnapiUuid: uuid, port, databaseUrl, redisUrl });
        const name = `instance-${port}`;
        const child = this.#run({ name, rank: 'instances', signal: 'SIGINT', command: () => command });
        await this.#untilUp(child, () => answersReady(url));
        return { uuid, url, pid: child.pid ?? 0 };
      }),
    );
  }

  async #startNameServer(databaseUrl: string): Promise<string> {
    const port = this.#options.port + this.#options.instances;
    const command = nameServerCommand(this.#data, port, databaseUrl);
    const child = this.#run({ name: 'name-server', rank: 'names', command: () => command });
    const dns = `127.0.0.1:${port}`;
    await this.#untilUp(child, async () => (await instancesNamedBy(dns, serviceName)) >= this.#options.instances);
    return dns;
  }

  async #startAgents(dns: string, url: string): Promise<Ready['agent']> {
    const { agent, agents } = this.#options;
    if (agent || agents > 0) this.#say('starting agents');
    if (agents > 0) {
      const fleet = fleetCommand(this.#data, dns, agents);
      this.#run({ name: 'fleet', rank: 'agents', command: () => fleet }).keepUp();
    }
    if (!agent) return undefined;
    const command = agentCommand(this.#data, dns);
    const child = this.#run({ name: 'agent', rank: 'agents', command: () => command });
    await this.#untilUp(child, async () => serverUuidOf(this.#data) !== undefined);
    const uuid = serverUuidOf(this.#data) ?? '';
    await untilServerRuns({ url, uuid, clock: this.#clock, signal: this.#stopping.signal });
    return { server_uuid: uuid, pid: child.pid ?? 0 };
  }

  #run({ name, rank, signal = 'SIGTERM', command }: Wanted): Child {
    const log = new RotatingLog(path.join(this.#data, 'log', `${name}.log`));
    const child = new Child({
      name,
      rank,
      signal,
      command,
      log,
      watch: this.#watch,
      clock: this.#clock,
      say: this.#say,
    });
    this.#logs.push(log);
    this.#children.push(child);
    if (!this.#isStopping) child.start();
    return child;
  }

  /** Resolves when `isUp` or when stopping. @throws Refusal with the child's last words when it ends instead, or is late. */
  async #untilUp(child: Child, isUp: () => Promise<boolean>): Promise<void> {
    const deadline = this.#clock.now() + startLimitMs;
    while (!this.#isStopping) {
      if (child.hasFailed || this.#clock.now() > deadline) throw await this.#failureOf(child);
      if (await isUp()) return child.keepUp();
      await this.#clock.sleep(pollMs, this.#stopping.signal);
    }
  }

  async #failureOf(child: Child): Promise<Refusal> {
    // What it printed last may still be in the pipe.
    await this.#clock.sleep(4 * pollMs);
    const how = child.hasFailed ? 'ended while it was starting' : `did not come up in ${startLimitMs / 1000} s`;
    const log = path.join(this.#data, 'log', `${child.name}.log`);
    return new Refusal(`${child.name} ${how} (all of it: ${log}); its last words:\n${child.lastWords}`);
  }

  get #isStopping(): boolean {
    return this.#stopping.signal.aborted;
  }
}

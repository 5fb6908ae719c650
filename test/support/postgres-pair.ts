/**
 * A Postgres of the distribution with a streaming standby that can be promoted: the primary on one
 * port, the standby on another, and one URL for both. Set up as in docs/failover.md.
 *
 *     both ──kill or hang(primary)──▶ standby only, read-only ──promote()──▶ it is the primary
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import type { Program } from '../../tools/processes/program.ts';
import { programFile, Quarters } from './debian-programs.ts';
import { freePort } from './fleet-harness.ts';
import type { Teardown } from './postgres.ts';
import { until } from './until.ts';

interface Server {
  port: number;
  url: string;
  dataDir: string;
  program: Program;
}

/**
 * Starts a primary and a standby. `synchronous`: a commit is answered once both have it on disk.
 */
export async function startPostgresPair(t: Teardown, { synchronous = false } = {}): Promise<PostgresPair> {
  const quarters = new Quarters();
  t.teardown(() => quarters.clear());
  const [primary, standby] = [await serverOf(quarters, 'primary'), await serverOf(quarters, 'standby')];
  const pair = new PostgresPair(quarters, primary, standby);
  await pair.start(synchronous);
  return pair;
}

export class PostgresPair {
  readonly url: string;
  readonly primary: Server;
  readonly standby: Server;
  readonly #quarters: Quarters;

  constructor(quarters: Quarters, primary: Server, standby: Server) {
    this.#quarters = quarters;
    this.primary = primary;
    this.standby = standby;
    const hosts = [primary, standby].map(({ port }) => `127.0.0.1:${port}`);
    this.url = `postgres://cnapi@${hosts.join(',')}/postgres?target_session_attrs=read-write`;
  }

  async start(synchronous: boolean): Promise<void> {
    const { primary, standby } = this;
    const kinds = ['--auth=trust', '--username=cnapi', '--encoding=UTF8', '--locale=C', '--no-sync'];
    this.#run('initdb', [`--pgdata=${primary.dataDir}`, ...kinds]);
    primary.program.start();
    await answers(primary);
    const from = `host=127.0.0.1 port=${primary.port} user=cnapi`;
    this.#run('pg_basebackup', [
      '-d',
      from,
      '-D',
      standby.dataDir,
      '--write-recovery-conf',
      '--checkpoint=fast',
      '--no-sync',
    ]);
    if (synchronous) await this.onPrimary("alter system set synchronous_standby_names = 'standby'");
    await this.onPrimary('select pg_reload_conf()');
    await this.startStandby(synchronous ? 'sync' : 'async');
  }

  /** Resolves when the standby has all data of the primary. */
  async startStandby(state: 'sync' | 'async'): Promise<void> {
    this.standby.program.start();
    await answers(this.standby);
    const isStreaming = `select 1 from pg_stat_replication where state = 'streaming' and sync_state = '${state}'`;
    await until(async () => (await this.onPrimary(isStreaming)).length === 1);
  }

  onPrimary<Row extends object>(text: string): Promise<Row[]> {
    return ask<Row>(this.primary, text);
  }

  onStandby<Row extends object>(text: string): Promise<Row[]> {
    return ask<Row>(this.standby, text);
  }

  /** Resolves when the standby has all data that the primary had at the time of the call. */
  async untilReplayed(): Promise<void> {
    const [at] = await this.onPrimary<{ lsn: string }>('select pg_current_wal_flush_lsn()::text as lsn');
    const hasIt = `select 1 where pg_last_wal_replay_lsn() >= '${at?.lsn}'::pg_lsn`;
    await until(async () => (await this.onStandby(hasIt)).length === 1);
  }

  /** Ends the replication: from now on the standby receives nothing from the primary. */
  async parts(): Promise<void> {
    await this.onStandby("alter system set primary_conninfo = ''");
    await this.onStandby('select pg_reload_conf()');
    await until(async () => (await this.onPrimary('select 1 from pg_stat_replication')).length === 0);
  }

  /** Acts like a machine that lost power and is back at once: its clients are disconnected. */
  async kill(server: Server): Promise<void> {
    this.#signal(server, 'SIGKILL');
    await server.program.ended();
  }

  /**
   * Acts like a machine that hangs: connections stay and new ones are made, but nothing answers.
   */
  hang(server: Server): void {
    this.#signal(server, 'SIGSTOP');
  }

  goOn(server: Server): void {
    this.#signal(server, 'SIGCONT');
  }

  /** Resolves when the standby takes writes. */
  async promote(): Promise<void> {
    await this.onStandby('select pg_promote(true, 60)');
  }

  #signal({ program: { pid } }: Server, signal: NodeJS.Signals): void {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean);
    for (const each of [pid, ...children.map(Number)]) send(each, signal);
  }

  #run(program: string, args: readonly string[]): void {
    const { identity } = this.#quarters;
    execFileSync(programFile(program), args, { ...identity, cwd: '/', stdio: ['ignore', 'ignore', 'pipe'] });
  }
}

async function serverOf(quarters: Quarters, name: string): Promise<Server> {
  const port = await freePort();
  const dataDir = path.join(quarters.folder, name);
  const settings = {
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    max_connections: '100',
    shared_buffers: '64MB',
    wal_level: 'replica',
    hot_standby: 'on',
    // The name under which the primary knows the standby.
    cluster_name: name,
  };
  const args = Object.entries(settings).flatMap(([key, value]) => ['-c', `${key}=${value}`]);
  const program = quarters.program(name, 'postgres', ['-D', dataDir, '-p', String(port), ...args]);
  return { port, dataDir, program, url: `postgres://cnapi@127.0.0.1:${port}/postgres` };
}

async function answers(server: Server): Promise<void> {
  await until(async () => {
    if (!server.program.isAlive) throw new Error(`${server.program.name} ended: ${server.program.log().at(-1)?.msg}`);
    return (await ask(server, 'select 1').catch(() => [])).length === 1;
  }, `${server.program.name} to answer`);
}

async function ask<Row extends object>({ url }: Server, text: string): Promise<Row[]> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 5_000 });
  client.on('error', () => undefined);
  await client.connect();
  try {
    return (await client.query<Row>(text)).rows;
  } finally {
    await client.end();
  }
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It has ended already.
  }
}

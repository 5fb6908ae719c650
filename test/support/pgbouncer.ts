/**
 * The distribution's pgbouncer in transaction mode in front of a Postgres, set up as in
 * docs/failover.md.
 */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import type { Program } from '../../tools/processes/program.ts';
import { Quarters } from './debian-programs.ts';
import { freePort } from './fleet-harness.ts';
import type { Teardown } from './postgres.ts';
import { until } from './until.ts';

export interface Pooler {
  url: string;
  program: Program;
  /** Like `kill -9` and a start. */
  restart(): Promise<void>;
}

/** A few connections, so that the statements of one client certainly use several of them. */
const POOL_SIZE = 6;

export async function startPooler(t: Teardown, databaseUrl: string): Promise<Pooler> {
  const quarters = new Quarters();
  t.teardown(() => quarters.clear());
  const port = await freePort();
  const { hostname, port: databasePort, username, pathname } = new URL(databaseUrl);
  const users = path.join(quarters.folder, 'users');
  const file = path.join(quarters.folder, 'pgbouncer.ini');
  writeFileSync(users, `"${username}" ""\n`);
  const lines = [
    '[databases]',
    `cnapi = host=${hostname} port=${databasePort} dbname=${pathname.slice(1)} user=${username}`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${port}`,
    'unix_socket_dir =',
    'auth_type = trust',
    `auth_file = ${users}`,
    'pool_mode = transaction',
    `default_pool_size = ${POOL_SIZE}`,
    'max_client_conn = 200',
    // Detects soon that the database is back.
    'server_login_retry = 1',
  ];
  writeFileSync(file, [...lines, ''].join('\n'));
  const program = quarters.program('pgbouncer', 'pgbouncer', [file]);
  const url = `postgres://${username}@127.0.0.1:${port}/cnapi`;
  const start = async () => {
    program.start();
    await until(async () => {
      if (!program.isAlive) throw new Error(`pgbouncer ended: ${program.log().at(-1)?.msg}`);
      return answers(url);
    }, 'pgbouncer to answer');
  };
  await start();
  const restart = async () => {
    await program.kill();
    await start();
  };
  return { url, program, restart };
}

async function answers(url: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 5_000 });
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.query('select 1');
    return true;
  } catch {
    return false;
  } finally {
    await client.end();
  }
}

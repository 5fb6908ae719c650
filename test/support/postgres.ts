/**
 * Fresh databases for tests, on one real Postgres 18 that all test files share: the server named by
 * CNAPI_TEST_DATABASE_URL (the test command starts it), else one that this process starts and that
 * ends with it.
 */
import { createHash, randomBytes } from 'node:crypto';
import pg from 'pg';
import { silentLogger } from '../../lib/platform/log.ts';
import type { DocumentBucket } from '../../lib/platform/moray/bucket.ts';
import { BucketStore } from '../../lib/platform/moray/bucket-store.ts';
import { type Migration, migrate } from '../../lib/platform/postgres/migrations.ts';
import { PostgresDatabase, type PostgresDeps } from '../../lib/platform/postgres/pool.ts';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { startTestPostgres } from './postgres-server.ts';

export { startTestPostgres, TestPostgres } from './postgres-server.ts';

/** The part of a tap test that is used here. */
export interface Teardown {
  teardown(work: () => unknown): void;
}

export interface FreshDatabase {
  url: string;
  database: PostgresDatabase;
  /** Another pool on the same database, as another instance would have; stopped at teardown. */
  open(options?: Partial<PostgresDeps>): PostgresDatabase;
}

let shared: Promise<string> | undefined;

/** The admin URL of the server with all test databases. */
export function testServerUrl(): Promise<string> {
  shared ??= findServer();
  return shared;
}

/**
 * A new empty database, dropped when `t` ends; with `migrations` and `buckets` if given. These are
 * created once for each server and then copied, which takes a fifth of the time. As files, because
 * the default also writes each page to the log of changes, which takes three times as long here.
 */
export async function freshDatabase(
  t: Teardown,
  { migrations = [] as readonly Migration[], buckets = [] as readonly DocumentBucket[] } = {},
): Promise<FreshDatabase> {
  const adminUrl = await testServerUrl();
  const name = `cnapi_test_${randomBytes(6).toString('hex')}`;
  const template = migrations.length > 0 ? await templateOf(adminUrl, { migrations, buckets }) : 'template1';
  await administer(adminUrl, `create database ${name} template ${template} strategy file_copy`);
  const url = Object.assign(new URL(adminUrl), { pathname: `/${name}` }).href;
  const opened: PostgresDatabase[] = [];
  const open = (options: Partial<PostgresDeps> = {}) => {
    const database = openDatabase(url, options);
    opened.push(database);
    return database;
  };
  t.teardown(async () => {
    await Promise.all(opened.map((database) => database.stop()));
    await administer(adminUrl, `drop database if exists ${name} with (force)`);
  });
  return { url, database: open(), open };
}

/** The templates that this process has found. Other test files find the databases on the server. */
const templates = new Map<string, Promise<string>>();

interface Contents {
  migrations: readonly Migration[];
  buckets: readonly DocumentBucket[];
}

/** The name of a database with these contents, to be copied. */
function templateOf(adminUrl: string, contents: Contents): Promise<string> {
  const digest = createHash('sha256')
    .update(JSON.stringify([adminUrl, contents]))
    .digest('hex')
    .slice(0, 20);
  const template = templates.get(digest) ?? createTemplate(adminUrl, `cnapi_template_${digest}`, contents);
  templates.set(digest, template);
  return template;
}

/** Test files need it at the same time: one creates it, and the others wait for its lock. */
async function createTemplate(adminUrl: string, name: string, { migrations, buckets }: Contents): Promise<string> {
  await administer(adminUrl, async (client) => {
    await client.query('select pg_advisory_lock(hashtextextended($1, 0))', [name]);
    const { rowCount } = await client.query('select from pg_database where datname = $1', [name]);
    if (rowCount !== 0) return;
    const unfinished = `${name}_${randomBytes(4).toString('hex')}`;
    await client.query(`create database ${unfinished}`);
    const database = openDatabase(Object.assign(new URL(adminUrl), { pathname: `/${unfinished}` }).href);
    await migrate(database, migrations, { log: silentLogger });
    for (const bucket of buckets) await new BucketStore({ database }).ensureBucket(bucket);
    await database.stop();
    await client.query(`alter database ${unfinished} rename to ${name}`);
  });
  return name;
}

/**
 * Forced lock waits last until they have been arranged, which on a busy machine takes longer than
 * the product's limit.
 */
const LOCK_TIMEOUT_MS = 10_000;

/** A pool on `url` without log output; the caller stops it. */
export function openDatabase(url: PostgresDeps['url'], options: Partial<PostgresDeps> = {}): PostgresDatabase {
  return new PostgresDatabase({
    url,
    applicationName: 'cnapi-test',
    log: silentLogger,
    clock: systemClock,
    lockTimeoutMs: LOCK_TIMEOUT_MS,
    ...options,
  });
}

async function findServer(): Promise<string> {
  return process.env.CNAPI_TEST_DATABASE_URL ?? (await startTestPostgres()).url;
}

async function administer(adminUrl: string, work: string | ((client: pg.Client) => Promise<void>)): Promise<void> {
  const client = new pg.Client({ connectionString: adminUrl, connectionTimeoutMillis: 30_000 });
  client.on('error', () => undefined);
  await client.connect();
  try {
    await (typeof work === 'string' ? client.query(work) : work(client));
  } finally {
    await client.end();
  }
}

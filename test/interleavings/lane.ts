/**
 * One database with its worlds, and five sessions in it: two legs, a third that holds the lock a
 * leg waits for, one that observes which sessions wait, and one that restores the world. Pairs of a
 * lane run one after the other; lanes run in parallel.
 */
import pg from 'pg';
import { serversBucket } from '../../lib/control/servers/server-bucket.ts';
import { migrations } from '../../lib/control/subsystem-list.ts';
import { BucketStore } from '../../lib/platform/moray/bucket-store.ts';
import type { Database, Queryable } from '../../lib/platform/postgres/database.ts';
import type { PostgresDatabase } from '../../lib/platform/postgres/pool.ts';
import { HANG_MS } from '../support/patience.ts';
import { freshDatabase, type Teardown } from '../support/postgres.ts';
import { beginLog, type Intent, installLab, intentsSql } from './lab-schema.ts';
import { buildWorld, type StillWorld, WORLD_NAMES, type WorldName } from './worlds.ts';

/**
 * Plans as with many rows: with a handful, Postgres would scan them and lock them in their physical
 * order.
 */
const PLANS = '-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off';
/** Nothing may fail because the machine is slow. */
const PATIENT = { statementTimeoutMs: HANG_MS, lockTimeoutMs: HANG_MS };
/**
 * After this many pairs the tables are vacuumed, because each pair leaves all rows of a world dead.
 */
const VACUUM_EVERY = 40;

export interface Leg extends Queryable {
  readonly name: string;
  transaction: Database['transaction'];
}

export class Lane {
  readonly one: Leg;
  readonly two: Leg;
  readonly admin: PostgresDatabase;
  readonly holder: pg.Client;
  /** The URL of its database, without the settings of the legs. */
  readonly url: string;
  readonly worlds = new Map<WorldName, StillWorld>();
  /** How a deliberate defect changes the text of a statement on its way. */
  rewrite: (text: string) => string = (text) => text;
  readonly #observer: pg.Client;
  readonly #begunAt = new Map<WorldName, number>();
  #resets = 0;

  private constructor(
    url: string,
    legs: [PostgresDatabase, PostgresDatabase],
    admin: PostgresDatabase,
    clients: [pg.Client, pg.Client],
  ) {
    this.url = url;
    this.one = this.#leg('leg one', legs[0]);
    this.two = this.#leg('leg two', legs[1]);
    this.admin = admin;
    [this.holder, this.#observer] = clients;
  }

  static async open(t: Teardown, names: readonly WorldName[] = WORLD_NAMES): Promise<Lane> {
    const { url, database, open } = await freshDatabase(t, { migrations });
    await installLab(database);
    const name = new URL(url).pathname.slice(1);
    await database.query(`alter database ${name} set deadlock_timeout = '100ms'`);
    const withSettings = (settings: string) => {
      const changed = new URL(url);
      changed.searchParams.set('options', `-c timezone=UTC ${settings}`);
      changed.searchParams.set('idle_in_transaction_session_timeout', '0');
      return changed.href;
    };
    const legs: [PostgresDatabase, PostgresDatabase] = [
      open({
        url: withSettings(`${PLANS} -c lab.stops=on`),
        applicationName: 'leg one',
        maxConnections: 1,
        ...PATIENT,
      }),
      open({ url: withSettings(PLANS), applicationName: 'leg two', maxConnections: 1, ...PATIENT }),
    ];
    const admin = open({ url: withSettings('-c session_replication_role=replica'), maxConnections: 1, ...PATIENT });
    const clients: [pg.Client, pg.Client] = [
      new pg.Client({ connectionString: withSettings('') }),
      new pg.Client({ connectionString: withSettings('') }),
    ];
    t.teardown(() => Promise.all(clients.map((client) => client.end())));
    await Promise.all(clients.map((client) => client.connect()));
    const lane = new Lane(url, legs, admin, clients);
    await lane.#buildWorlds(database, names);
    return lane;
  }

  /** Restores a world and starts a new log, with what the callers know. */
  async reset(world: WorldName, intents: readonly Intent[]): Promise<void> {
    this.#resets += 1;
    if (this.#resets % VACUUM_EVERY === 0) await this.admin.query('vacuum');
    await this.admin.query(`select lab.reset_${world}()`, [], { name: `reset ${world}` });
    if (intents.length > 0) await this.admin.query(intentsSql, [JSON.stringify(intents)], { name: 'intents' });
  }

  /** Makes each JSON value of every table `bytes` wide in every world that is restored later. */
  async widen(bytes: number): Promise<void> {
    const { rows } = await this.admin.query<{ sql: string }>(
      `select format('update %I.%I set %s', nspname, relname, string_agg(format('%I = %L', attname, $1::text), ', ')) as sql
       from pg_attribute join pg_class c on c.oid = attrelid join pg_namespace n on n.oid = relnamespace
       where (nspname = 'public' or nspname like 'world\\_%') and relname like 'cnapi%' and relkind = 'r'
         and atttypid in ('json'::regtype, 'jsonb'::regtype)
         and not attisdropped and attgenerated = '' group by nspname, relname`,
      [JSON.stringify({ wide: 'x'.repeat(bytes) })],
    );
    for (const { sql } of rows) await this.admin.query(sql);
  }

  /** The last entry of the log before anything happens in this world. */
  begunAt(world: WorldName): number {
    return this.#begunAt.get(world) ?? 0;
  }

  /** Whether a leg waits for a lock. */
  async isWaiting({ name }: Leg): Promise<boolean> {
    const { rows } = await this.#observer.query({
      name: 'waiting',
      text: `select 1 from pg_stat_activity where application_name = $1 and datname = current_database()
        and wait_event_type = 'Lock' and wait_event in ('transactionid', 'tuple', 'advisory', 'spectoken')`,
      values: [name],
    });
    return rows.length > 0;
  }

  /** A statement that restores the sequences by which rows are read. */
  async #positions(): Promise<string> {
    const { rows } = await this.admin.query<{ taken: number; removed: number }>(
      `select (select last_value from cnapi_legacy_heartbeats_id_seq) as taken,
         (select last_value from cnapi_legacy_heartbeats_removed_seq) as removed`,
    );
    const { taken = 0, removed = 0 } = rows[0] ?? {};
    return `perform setval('cnapi_legacy_heartbeats_id_seq', ${taken}), setval('cnapi_legacy_heartbeats_removed_seq', ${removed});`;
  }

  #leg(name: string, database: PostgresDatabase): Leg {
    const through = (queryable: Queryable) => rewriting(queryable, (text) => this.rewrite(text));
    return {
      name,
      ...through(database),
      transaction: (work, options) => database.transaction((inner) => work(through(inner)), options),
    };
  }

  async #buildWorlds(database: PostgresDatabase, names: readonly WorldName[]): Promise<void> {
    await new BucketStore({ database }).ensureBucket(serversBucket);
    const { rows: tables } = await this.admin.query<SavedTable>(
      `select format('%I.%I', nspname, relname) as name, relname as copy, string_agg(quote_ident(attname), ', ') as columns
       from pg_class join pg_namespace n on n.oid = relnamespace join pg_attribute on attrelid = pg_class.oid
       where nspname in ('public', 'lab') and relkind = 'r' and attnum > 0 and not attisdropped and attgenerated = ''
         and relname not in ('cnapi_migrations', 'cnapi_buckets', 'cnapi_chores', 'cnapi_event_log')
       group by nspname, relname`,
    );
    // The log's position is restored with its rows, so it always exists.
    const emptied = tables.filter(({ copy }) => copy !== 'cnapi_event_numberings');
    for (const name of names) {
      await this.admin.query(emptied.map((table) => `delete from ${table.name};`).join('\n'));
      this.worlds.set(name, await buildWorld(database, name));
      this.#begunAt.set(name, await beginLog(database));
      await this.admin.query(saveSql(name, tables, await this.#positions()));
    }
  }
}

/** The same database, with the texts of statements changed on their way. */
export function rewriting(queryable: Queryable, rewrite: (text: string) => string): Queryable {
  return {
    query: (text, values, options = {}) => {
      const changed = rewrite(text);
      // A changed statement has no name, because one name stands for one text.
      return queryable.query(changed, values, changed === text ? options : {});
    },
  };
}

interface SavedTable {
  name: string;
  copy: string;
  /** All columns except those that the database computes. */
  columns: string;
}

/** A copy of all rows, and a function that restores it. */
function saveSql(world: WorldName, tables: readonly SavedTable[], positions: string): string {
  const back = tables.map(
    ({ name, copy, columns }) => `delete from ${name};
      insert into ${name} (${columns}) overriding system value select ${columns} from world_${world}.${copy};`,
  );
  return `
    create schema world_${world};
    ${tables.map(({ name, copy }) => `create table world_${world}.${copy} as table ${name};`).join('\n')}
    create function lab.reset_${world}() returns void language plpgsql as $$
    begin
      ${back.join('\n')}
      ${positions}
    end $$;`;
}

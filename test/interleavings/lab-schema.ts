/**
 * What the tests add to a database: a log of every change to coordination rows, with what each
 * transaction could see when it wrote; what callers knew when they wrote (`lab.intents`); and a
 * `cnapi_now()` at which the first of two legs can be stopped, between reading and writing.
 */
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import { loggedTables } from '../support/subsystem-coverage.ts';

/** The holder of this lock stops calls of `cnapi_now()` on connections with `lab.stops` on. */
export const CLOCK_LOCK = 77;

const logOf = (table: string): string => `lab.${table.replace('cnapi_', '')}_log`;

/**
 * A change is numbered while its row is locked, so the numbers of one row's changes have the order
 * of their commits. The trigger itself reads `seen`, after all waits: what had been committed when
 * the row was written.
 */
function logSql(table: string, key: string): string {
  const log = logOf(table);
  return `
    create table ${log} (
      id bigint primary key default nextval('lab.changes'), xid xid8 not null default pg_current_xact_id(),
      seen pg_snapshot not null default pg_current_snapshot(), key uuid not null, was ${table}, now ${table},
      span int8range not null default int8range(
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_current_xact_id()::text::bigint, '[]')
    );
    create index on ${log} (key, id);
    create index on ${log} using gist (span);
    create function ${log}_change() returns trigger language plpgsql as $$
    begin
      if tg_op = 'INSERT' then
        insert into ${log} (key, now) values (new.${key}, new);
      elsif tg_op = 'UPDATE' then
        insert into ${log} (key, was, now) values (new.${key}, old, new);
      else
        insert into ${log} (key, was) values (old.${key}, old);
      end if;
      return null;
    end $$;
    create trigger lab_log after insert or update or delete on ${table} for each row execute function ${log}_change();`;
}

/** The same for the heartbeats of legacy agents: one entry for each server of a record. */
const HEARTBEATS_LOG = `
  create table lab.heartbeats_log (
    id bigint primary key default nextval('lab.changes'), xid xid8 not null default pg_current_xact_id(),
    seen pg_snapshot not null default pg_current_snapshot(), key uuid not null, record bigint not null,
    span int8range not null default int8range(
      pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_current_xact_id()::text::bigint, '[]')
  );
  create index on lab.heartbeats_log (key, id);
  create index on lab.heartbeats_log using gist (span);
  create function lab.heartbeats_log_change() returns trigger language plpgsql as $$
  begin
    insert into lab.heartbeats_log (key, record) select unnest(new.servers), new.id;
    return null;
  end $$;
  create trigger lab_log after insert on cnapi_legacy_heartbeats for each row execute function lab.heartbeats_log_change();`;

const LAB = `
  create schema lab;
  create sequence lab.changes;
  -- A status change of, or a new run for, (server, run, epoch); a silence of (server, epoch, record); a run whose beat was seen not
  -- to move; an incarnation of a server found dead by a probe; (duty, run, generation) that its holder settles.
  create table lab.intents (
    kind text not null check (kind in ('status-change', 'silence', 'lapse', 'probe', 'renewal', 'settlement')), subject uuid not null, run uuid,
    number bigint, record bigint
  );
  create index on lab.intents (subject, run, number);
  ${loggedTables.map(({ table, key }) => logSql(table, key)).join('\n')}
  ${HEARTBEATS_LOG}
  create or replace function cnapi_now() returns timestamptz language plpgsql stable as $$
  begin
    if current_setting('lab.stops', true) = 'on' then
      perform pg_advisory_xact_lock_shared(${CLOCK_LOCK});
    end if;
    return clock_timestamp();
  end $$;`;

export async function installLab(database: Queryable): Promise<void> {
  await database.query(LAB);
}

/**
 * Events count from here on; the present state is the first entry of each row's log. Returns the
 * last of these entries.
 */
export async function beginLog(database: Queryable): Promise<number> {
  const parts = loggedTables.map(
    ({ table, key }) =>
      `delete from ${logOf(table)}; insert into ${logOf(table)} (key, now) select ${key}, t from ${table} t;`,
  );
  parts.push(`delete from lab.heartbeats_log; insert into lab.heartbeats_log (key, record)
    select unnest(servers), id from cnapi_legacy_heartbeats order by id;`);
  await database.query(parts.join('\n'));
  const { rows } = await database.query<{ last: number }>('select last_value as last from lab.changes');
  return rows[0]?.last ?? 0;
}

export interface Intent {
  kind: 'status-change' | 'silence' | 'lapse' | 'probe' | 'renewal' | 'settlement';
  /** The server, the run that lapsed, or the duty. */
  subject: string;
  /** The run of a session loss, or the run before a new one, or the incarnation of a probe. */
  run?: string;
  /** The epoch of a session loss, the beat of a lapse, or the generation of a duty. */
  number?: number;
  /** The last record of heartbeats before a silence. */
  record?: number;
}

export const intentsSql = `insert into lab.intents (kind, subject, run, number, record)
  select kind, subject, run, number, record
    from json_to_recordset($1::json) as i (kind text, subject uuid, run uuid, number bigint, record bigint)`;

/** What a caller knows and is about to act on. */
export async function recordIntents(database: Queryable, intents: readonly Intent[]): Promise<void> {
  if (intents.length > 0) await database.query(intentsSql, [JSON.stringify(intents)]);
}

/**
 * Checks whether the database can be reached, is suitable for an instance, and how durable its
 * commits are. Reads only.
 */

import { isTemporary, messageOf } from '../../platform/errors.ts';
import { type Queryable, sqlStateOf } from '../../platform/postgres/database.ts';
import { FORMER_SCHEMA, hasFormerSchema, keyOf } from '../../platform/postgres/migrations.ts';
import type { Config } from '../config.ts';
import { type CheckInput, type Finding, type Findings, findings } from './finding.ts';

const LEAST_VERSION = 15;
/**
 * Connections outside the pool: three for arriving agents; two for authentication; one each for the
 * beat, status changes and legacy heartbeats; and two for a bus in the database.
 */
const FURTHER_CONNECTIONS = 8;
const BUS_CONNECTIONS = 2;
const MUCH_SKEW_MS = 2000;
const FAR_MS = 100;

interface About {
  version: number;
  maxConnections: number;
  reserved: number;
  synchronousCommit: string;
  standbyNames: string;
  standbys: number;
  /**
   * The number of standbys for which commits wait; null if this user may not see which they are.
   */
  synchronous: number | null;
  isStandby: boolean;
  isReadOnly: boolean;
  mayCreate: boolean;
  nowMs: number;
  user: string;
}

const ABOUT = `select current_setting('server_version_num')::int / 10000 as version,
  current_setting('max_connections')::int as "maxConnections",
  current_setting('superuser_reserved_connections')::int as reserved,
  current_setting('synchronous_commit') as "synchronousCommit",
  current_setting('synchronous_standby_names') as "standbyNames",
  (select count(*) from pg_stat_replication)::int as standbys,
  (select case when count(*) = count(sync_state) then count(*) filter (where sync_state in ('sync', 'quorum')) end
     from pg_stat_replication)::int as synchronous,
  pg_is_in_recovery() as "isStandby",
  current_setting('transaction_read_only')::bool as "isReadOnly",
  coalesce(has_schema_privilege(current_schema(), 'create') and has_schema_privilege(current_schema(), 'usage'), false) as "mayCreate",
  extract(epoch from clock_timestamp())::float8 * 1000 as "nowMs",
  current_user as "user"`;

export async function checkDatabase({ database, migrations, config, clock }: CheckInput): Promise<Finding[]> {
  const part = findings('database');
  try {
    // Connects first, so that the time to connect is not counted as a clock difference.
    await database.query('select 1');
    const sentAt = clock.now();
    await database.query('select 1');
    const roundTripMs = clock.now() - sentAt;
    const askedAt = clock.wallTime();
    const { rows } = await database.query<About>(ABOUT);
    const about = rows[0] as About;
    const skewMs = about.nowMs - (askedAt + clock.wallTime()) / 2;
    const steps = await checkMigrations(database, migrations, part);
    const instances = await countOthers(database, config);
    return [
      ...aboutItself(part, about),
      steps,
      aboutConnections(part, about, { config, instances }),
      aboutDurability(part, about),
      aboutSkew(part, skewMs),
      aboutDistance(part, roundTripMs),
    ];
  } catch (error) {
    return [unreachable(part, error)];
  }
}

function unreachable(part: Findings, error: unknown): Finding {
  const cause = isTemporary(error) && error.cause !== undefined ? error.cause : error;
  const reason = messageOf(cause);
  const known = ADVICE[sqlStateOf(cause) ?? (cause as { code?: string }).code ?? ''];
  return part.fail(
    `cannot be used: ${reason}`,
    known ?? 'see that databaseUrl names it, that it runs, and that it can be reached',
  );
}

const NO_HOST = 'see that the host in databaseUrl is right, and that its name is known to this machine';
const NOBODY =
  'see that Postgres runs there, listens on that address (listen_addresses), and that no firewall is between';
const ADVICE: Readonly<Record<string, string>> = {
  ENOTFOUND: NO_HOST,
  EAI_AGAIN: NO_HOST,
  ECONNREFUSED: NOBODY,
  ETIMEDOUT: NOBODY,
  '28P01': 'correct the user or the password in databaseUrl (special characters are written as %XX)',
  '28000': 'let this user in from this machine (pg_hba.conf), or correct the user in databaseUrl',
  '3D000': 'create it: createdb -O USER NAME; the tables are made by the first instance',
  '53300': 'all its connections are taken: raise max_connections, or lower databasePoolSize',
  '42501': 'grant the user what it lacks: it must own the tables, or have created them',
};

function aboutItself(part: Findings, about: About): Finding[] {
  const { version, isStandby, isReadOnly, mayCreate, user } = about;
  if (version < LEAST_VERSION)
    return [part.fail(`it is Postgres ${version}`, `upgrade it to ${LEAST_VERSION} or newer`)];
  if (isStandby || isReadOnly)
    return [part.fail('it is read-only, a standby', 'name the primary in databaseUrl, or all of them, by comma')];
  if (!mayCreate)
    return [part.fail(`${user} may not create tables there`, `grant create, usage on schema public to ${user}`)];
  return [part.ok(`Postgres ${version} answers, and ${user} may create tables there`)];
}

async function checkMigrations(
  database: Queryable,
  migrations: CheckInput['migrations'],
  part: Findings,
): Promise<Finding> {
  const { rows } = await database.query<{ there: boolean }>(
    "select to_regclass('cnapi_migrations') is not null as there",
  );
  if (!rows[0]?.there) return part.ok('it is empty: the first instance makes the tables');
  if (await hasFormerSchema(database)) return part.fail(`it has ${FORMER_SCHEMA.what}`, FORMER_SCHEMA.remedy);
  const applied = await database.query<{ subsystem: string; number: number }>(
    'select subsystem, number from cnapi_migrations',
  );
  const [there, knownKeys] = [new Set(applied.rows.map(keyOf)), new Set(migrations.map(keyOf))];
  const lacking = migrations.filter((migration) => !there.has(keyOf(migration)));
  const newer = [...there].filter((key) => !knownKeys.has(key));
  if (newer.length > 0)
    return part.warn(
      `a newer version has changed it (steps ${newer.join(', ')})`,
      'that is fine while a version is rolled back or others are upgraded; else upgrade this one too',
    );
  return part.ok(
    lacking.length > 0
      ? `${lacking.length} steps of migration are made at the next start`
      : 'its tables are as they should be',
  );
}

/** Counts live instances other than this one. */
async function countOthers(database: Queryable, { cnapiUuid }: Config): Promise<number> {
  const { rows } = await database.query<{ there: boolean }>(
    "select to_regclass('cnapi_instances') is not null as there",
  );
  if (!rows[0]?.there) return 0;
  const live = await database.query<{ count: number }>(
    `select count(*)::int as count from cnapi_instances where state = 'live' and cnapi_uuid is distinct from $1::uuid`,
    [cnapiUuid ?? null],
  );
  return live.rows[0]?.count ?? 0;
}

function aboutConnections(
  part: Findings,
  about: About,
  { config, instances }: { config: Config; instances: number },
): Finding {
  const each = config.databasePoolSize + FURTHER_CONNECTIONS + (config.redisUrl === undefined ? BUS_CONNECTIONS : 0);
  const wanted = each * (instances + 1);
  const room = about.maxConnections - about.reserved;
  const text = `${each} connections for this instance, ${wanted} with the ${instances} others that live; there is room for ${room}`;
  if (config.databasePooler !== undefined) return part.ok(`this instance has up to ${each} connections to the pooler`);
  if (wanted > room)
    return part.fail(
      text,
      `raise max_connections to ${wanted + about.reserved + 10} or more, or lower databasePoolSize`,
    );
  if (wanted + each > room)
    return part.warn(`${text}, so not for one instance more`, 'raise max_connections before you add one');
  return part.ok(text);
}

function aboutDurability(part: Findings, about: About): Finding {
  const { synchronousCommit, standbyNames, standbys } = about;
  if (synchronousCommit === 'off')
    return part.warn('synchronous_commit is off: a crash loses what was accepted last', 'set it to on');
  if (standbyNames !== '') return aboutSynchronous(part, about);
  if (standbys === 0) return part.ok('no standby: what is accepted is as durable as its disk; have backups');
  return part.warn(
    `${standbys} standbys, none of them synchronous: a failover loses what was accepted last`,
    'set synchronous_standby_names, or read in docs/failover.md what that means',
  );
}

function aboutSynchronous(part: Findings, about: About): Finding {
  const { synchronousCommit, standbyNames, standbys, synchronous } = about;
  const text = `synchronous_commit is ${synchronousCommit}, synchronous_standby_names ${standbyNames}`;
  if (synchronousCommit === 'local')
    return part.warn(
      `${text}: no commit waits for a standby, and a failover loses what was accepted last`,
      'set synchronous_commit to on',
    );
  const there = synchronous ?? standbys;
  const wanted = Number(/^\s*(?:first|any)?\s*(\d+)\s*\(/i.exec(standbyNames)?.[1] ?? 1);
  if (there >= wanted)
    return part.ok(`${text}; ${there} connected${synchronous === null ? ', which ones only a monitor may see' : ''}`);
  return part.fail(
    `${text}, of which ${there} are connected and ${wanted} must be: no commit ever ends`,
    'start or connect the standby, or set synchronous_standby_names for those that are there (docs/failover.md)',
  );
}

function aboutDistance(part: Findings, roundTripMs: number): Finding {
  const text = `it answers in ${Math.max(1, Math.round(roundTripMs))} ms`;
  if (roundTripMs < FAR_MS) return part.ok(text);
  return part.warn(
    text,
    'run instances near the database: each request waits for several such answers, and agents that arrive are told to return later',
  );
}

function aboutSkew(part: Findings, skewMs: number): Finding {
  const text = `its clock and this machine's are ${Math.round(Math.abs(skewMs))} ms apart`;
  if (Math.abs(skewMs) < MUCH_SKEW_MS) return part.ok(text);
  return part.warn(
    text,
    'have both synchronised (chrony, systemd-timesyncd): times in answers and logs do not fit together',
  );
}

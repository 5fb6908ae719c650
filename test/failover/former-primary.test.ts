/**
 * A primary that still runs although its standby was promoted: the instance leaves it and does not
 * return.
 */
import t from 'tap';
import { DatabaseUnavailableError } from '../../lib/platform/errors.ts';
import type { Logger } from '../../lib/platform/log.ts';
import { DatabaseHosts } from '../../lib/platform/postgres/hosts.ts';
import { lacks } from '../support/debian-programs.ts';
import { matchLists } from '../support/match-lists.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { openDatabase } from '../support/postgres.ts';
import { startPostgresPair } from '../support/postgres-pair.ts';
import { until } from '../support/until.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const options = { skip: lacks('postgres', 'pg_basebackup'), timeout: FILE_TIMEOUT_MS };

t.test('a former primary that still runs is left for good after the promotion', options, async (t) => {
  const pair = await startPostgresPair(t);
  const complaints: string[] = [];
  const ignore = () => undefined;
  const error = (_fields: object, message: string) => void complaints.push(message);
  const log = { info: ignore, warn: ignore, debug: ignore, error } as unknown as Logger;
  const hosts = new DatabaseHosts(pair.url, log);
  const database = openDatabase(hosts, { log, maxConnections: 2, statementTimeoutMs: 800, queryTimeoutMs: 1_000 });
  t.teardown(() => database.stop());
  const write = () => database.query(`insert into written (at) values (current_setting('port')::int) returning at`);
  /** A statement or two may be lost on the way. */
  const written = () => until(async () => (await write().catch(() => undefined))?.rows[0]?.at, 'a write to succeed');
  await until(
    async () => (await database.query('create table if not exists written (at int)')).rowCount === 0,
    'the table to be created',
  );
  t.equal(await written(), pair.primary.port);
  await pair.untilReplayed();

  // Like a primary that has lost its synchronous standby: it accepts connections and reads, but
  // commits nothing.
  await pair.onPrimary(`alter system set synchronous_standby_names = 'nobody'`);
  await pair.onPrimary('select pg_reload_conf()');
  await until(
    async () => (await pair.onPrimary<{ names: string }>(NAMES))[0]?.names === 'nobody',
    'the setting to take effect',
  );
  await pair.promote();
  await t.rejects(write(), DatabaseUnavailableError, 'a commit there gets no answer');
  t.equal(await written(), pair.standby.port, 'the next one goes to the promoted host');
  t.same(complaints, []);

  await pair.onPrimary(`alter system set synchronous_standby_names = ''`);
  await pair.onPrimary('select pg_reload_conf()');
  await until(
    async () => (await pair.onPrimary<{ names: string }>(NAMES))[0]?.names === '',
    'it to accept writes again',
  );
  // One connection attempt has failed.
  hosts.failed(hosts.next);
  await pair.onStandby(`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'cnapi-test'`);
  for (let each = 0; each < 10; each++)
    t.equal(await written(), pair.standby.port, 'no write returns to the former primary');
  matchLists(t, complaints, [/former primary/], 'logged once');
});

const NAMES = `select current_setting('synchronous_standby_names') as names`;

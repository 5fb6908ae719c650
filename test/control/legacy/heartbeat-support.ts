/**
 * A database with the roster, legacy heartbeats and servers in it, and the shorthands that their
 * tests share.
 */
import { randomUUID } from 'node:crypto';
import { readHeartbeatRows, recordHeartbeats, recordSilences } from '../../../lib/control/legacy/heartbeat-store.ts';
import { insertRun } from '../../../lib/control/roster/membership/instance-store.ts';
import { acceptSession, type RunIdentity, readRow } from '../../../lib/control/roster/status/roster-store.ts';
import { Servers } from '../../../lib/control/servers/servers.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import type { Database } from '../../../lib/platform/postgres/database.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { migrationsOf } from '../../support/migrations-of.ts';

export const migrations = migrationsOf('moray', 'roster', 'legacy', 'servers', 'tasks', 'vms');

export async function openFleet(database: Database) {
  const servers = new Servers({ database, clock: systemClock, log: silentLogger, datacenter: 'dc' });
  await servers.start();
  const a = randomUUID();
  const b = randomUUID();

  /** A live run of an instance. */
  async function newRun(): Promise<RunIdentity> {
    const writer = { cnapiUuid: randomUUID(), run: randomUUID() };
    const { cnapiUuid, run } = writer;
    const identity = { cnapiUuid, url: 'http://127.0.0.1:1', host: '127.0.0.1', port: 1, pid: 1, version: '0' };
    await insertRun(database, run, identity, null);
    return writer;
  }
  async function newServer(): Promise<string> {
    const serverUuid = randomUUID();
    await servers.recordSysinfo(serverUuid, { UUID: serverUuid, Hostname: 'old' });
    return serverUuid;
  }
  const see = async (serverUuid: string, ageMs = 0, by = a) =>
    (await recordHeartbeats(database, by, () => [{ serverUuid, ageMs }]))[0];
  /** While the server is `running` by its heartbeats; else 0. */
  const lastRecord = async (serverUuid: string) =>
    (await readHeartbeatRows(database, 10_000)).find((one) => one.serverUuid === serverUuid)?.lastRecord ?? 0;
  /** A silence since its last record, or since the given one. */
  const judge = async (serverUuid: string, epoch: number, record?: number) =>
    recordSilences(database, b, [{ serverUuid, epoch, lastRecord: record ?? (await lastRecord(serverUuid)) }]);
  const connect = (serverUuid: string, writer: RunIdentity, fields = {}) =>
    acceptSession(
      database,
      writer,
      { serverUuid, incarnation: randomUUID(), conn: 1, journalId: randomUUID(), epoch: 0, ...fields },
      null,
    );
  const row = (serverUuid: string) => readRow(database, serverUuid);
  const status = async (serverUuid: string) => {
    const found = await row(serverUuid);
    return found && `${found.status} ${found.reason} epoch ${found.epoch}${found.run === null ? '' : ' of a run'}`;
  };
  return { database, servers, a, b, newRun, newServer, see, lastRecord, judge, connect, row, status };
}

/**
 * Work on servers, on reports of their agents, and on servers with legacy agents, for the test of a
 * locked row.
 */
import { randomUUID } from 'node:crypto';
import type { Test } from 'tap';
import { HeartbeatMonitor } from '../../lib/control/legacy/heartbeat-monitor.ts';
import { readHeartbeatRows, recordHeartbeats, recordSilences } from '../../lib/control/legacy/heartbeat-store.ts';
import { LegacyDispatch } from '../../lib/control/legacy/legacy-dispatch.ts';
import { readRow } from '../../lib/control/roster/status/roster-store.ts';
import { Servers } from '../../lib/control/servers/servers.ts';
import { Recorder } from '../../lib/control/tasks/reports/recorder.ts';
import type { PostgresDatabase } from '../../lib/platform/postgres/pool.ts';
import { systemRandom } from '../../lib/platform/random.ts';
import { HealthyTimer } from '../../lib/platform/time/healthy-timer.ts';
import { legacyServer, liveRun } from '../control/legacy/support/legacy-seats.ts';
import { create, row } from '../control/tasks/support/task-database.ts';
import { createMemoryBus, MemoryHub } from '../support/memory-bus.ts';
import { heldOf, NAMES, ports, turns, type Work, workOn } from './held-row-work.ts';

async function newServers(t: Test, database: PostgresDatabase) {
  const servers = new Servers({ database, ...ports, datacenter: 'dc' });
  await servers.start();
  t.teardown(() => servers.stop());
  const sysinfoOf = (serverUuid: string, fields = {}) => ({ UUID: serverUuid, Hostname: 'a server', ...fields });
  const make = async () => {
    const made = NAMES.map(() => randomUUID());
    for (const one of made) await servers.recordSysinfo(one, sysinfoOf(one));
    return made;
  };
  return { servers, sysinfoOf, make };
}

export async function serverWorks(t: Test, database: PostgresDatabase): Promise<Work[]> {
  const { servers, sysinfoOf, make } = await newServers(t, database);
  const reporting = await make();
  const report = (used: number) => ({ vms: {}, meminfo: { availrmem_bytes: used } });
  for (const one of reporting) await servers.recordReport(one, report(1));
  const updated = await make();
  return [
    workOn(reporting, {
      name: 'reports of servers',
      holds: { cnapi_server_reports: `server_uuid = '${heldOf(reporting)}'` },
      begin: () => {
        for (const one of reporting) servers.queueReport({ serverUuid: one, epoch: undefined }, report(2), 100);
      },
      isSo: (one) =>
        has(
          database,
          `select 1 from cnapi_server_reports where server_uuid = $1 and memory @> '{"memory_available_bytes": 2}'`,
          one,
        ),
    }),
    workOn(updated, {
      name: 'sysinfos',
      holds: {
        cnapi_servers: `uuid = '${heldOf(updated)}'`,
        cnapi_server_sysinfo: `server_uuid = '${heldOf(updated)}'`,
      },
      begin: () => {
        // Items behind the first one share one statement. A refused agent sends it again.
        const other = randomUUID();
        void servers.recordSysinfo(other, sysinfoOf(other)).catch(() => undefined);
        for (const one of updated)
          turns(t, () => servers.recordSysinfo(one, sysinfoOf(one, { 'Live Image': 'new' })))();
      },
      isSo: (one) =>
        has(
          database,
          `select 1 from cnapi_server_sysinfo where server_uuid = $1 and sysinfo ->> 'Live Image' = 'new'`,
          one,
        ),
    }),
  ];
}

export async function legacyAgentWorks(t: Test, database: PostgresDatabase): Promise<Work[]> {
  const { make } = await newServers(t, database);
  const cnapiUuid = randomUUID();
  const healthyTimer = new HealthyTimer({ clock: ports.clock, checkMs: 250 });
  const observer = new HeartbeatMonitor({
    database,
    cnapiUuid,
    ...ports,
    healthyTimer,
    times: { legacyHeartbeatLifetimeMs: 11_000, legacyHeartbeatRecordMs: 500, legacyGraceMs: 5_000 },
    mayMarkOthersUnknown: () => false,
  });
  t.teardown(async () => {
    healthyTimer.stop();
    await observer.stop();
  });
  const stand = async (servers: readonly string[]) =>
    (await readHeartbeatRows(database, 1_000)).filter(({ serverUuid }) => servers.includes(serverUuid));
  const heard = async () => {
    const servers = await make();
    await recordHeartbeats(database, cnapiUuid, () => servers.map((serverUuid) => ({ serverUuid, ageMs: 0 })));
    return servers;
  };
  const isIn = (status: string) => async (one: string) => (await readRow(database, one))?.status === status;
  const holds = (servers: readonly string[]) => ({
    cnapi_status: `server_uuid = '${heldOf(servers)}'`,
    cnapi_roster_authority: `server_uuid = '${heldOf(servers)}'`,
  });

  const silent = await heard();
  const silences = await stand(silent);
  const back = await heard();
  await recordSilences(database, cnapiUuid, await stand(back));
  return [
    workOn(silent, {
      name: 'silences of legacy agents',
      holds: holds(silent),
      begin: turns(t, () => recordSilences(database, cnapiUuid, silences)),
      isSo: isIn('unknown'),
    }),
    workOn(back, {
      name: 'heartbeats of legacy agents',
      holds: holds(back),
      begin: () => {
        healthyTimer.start();
        observer.start();
        turns(t, async () => {
          for (const one of back) observer.heartbeat(one);
        })();
      },
      isSo: isIn('running'),
    }),
  ];
}

export async function postWorks(t: Test, database: PostgresDatabase): Promise<Work[]> {
  const run = await liveRun(database);
  const bus = createMemoryBus({ hub: new MemoryHub(), random: systemRandom, ...ports, beatMs: 50 });
  await bus.start();
  const recorder = new Recorder({ database, ...ports, onChanged: () => {}, onStored: () => {} });
  const posts = new LegacyDispatch({
    database,
    bus,
    agents: { post: async () => ({ outcome: 'complete', result: {} }) },
    run: () => run,
    ...ports,
    config: { taskOverdueMs: 60_000, ownerlessGraceMs: 5_000, slowPollMs: 60_000 },
    record: (subject, end, acknowledge) => recorder.endOfPost(subject, end, acknowledge),
    onChanged: () => {},
  });
  t.teardown(async () => {
    await posts.stop();
    await recorder.stop();
    await bus.stop();
  });
  const postsOf = async (name: string, begin: (servers: readonly string[]) => void) => {
    const servers = await Promise.all(NAMES.map(() => legacyServer(database)));
    const ids = await Promise.all(servers.map((serverUuid) => create(database, serverUuid)));
    return workOn(ids, {
      name,
      holds: {
        cnapi_tasks: `id = '${heldOf(ids)}'`,
        cnapi_roster_authority: `server_uuid = '${heldOf(servers)}'`,
      },
      begin: () => begin(servers),
      isSo: async (id) => (await row(database, id)).state === 'ended',
    });
  };
  return [
    await postsOf(
      'posts',
      turns(t, async () => posts.poll()),
    ),
    await postsOf('hinted posts', (servers) => {
      for (const serverUuid of servers) posts.hint(serverUuid);
    }),
  ];
}

async function has(database: PostgresDatabase, sql: string, serverUuid: string): Promise<boolean> {
  return (await database.query(sql, [serverUuid])).rows.length > 0;
}

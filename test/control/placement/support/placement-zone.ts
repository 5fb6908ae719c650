/**
 * Servers with room for VMs, as the tests of placement need them: rows that agents would have
 * caused.
 */
import { randomUUID } from 'node:crypto';
import { type ReportToStore, storeReports } from '../../../../lib/control/servers/server-store.ts';
import { Servers } from '../../../../lib/control/servers/servers.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Database } from '../../../../lib/platform/postgres/database.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import type { JsonObject } from '../../../../lib/protocol/json/bounded-json.ts';
import type { Teardown } from '../../../support/postgres.ts';

const MIB = 1024 * 1024;

/**
 * Configuration of instances: heartbeats last long, because no agent keeps these servers running.
 */
export const withoutAgents = { legacyHeartbeatLifetimeMs: 86_400_000 };

interface ServerRoom {
  uuid?: string;
  /** MiB; nothing of it is reserved. */
  ram?: number;
  disk?: number;
  cores?: number;
  status?: 'running' | 'unknown';
  sysinfo?: JsonObject;
  properties?: JsonObject;
  vms?: Record<string, JsonObject>;
}

export async function placementZone(t: Teardown, database: Database) {
  const servers = new Servers({ database, clock: systemClock, log: silentLogger, datacenter: 'dc' });
  await servers.start();
  t.teardown(() => servers.stop());

  const report = async (serverUuid: string, vms: Record<string, JsonObject>, disk = 1_000_000) => {
    const figures = { memory: {}, disk: { disk_pool_size_bytes: disk * MIB } };
    const one: ReportToStore = { serverUuid, epoch: 1, report: { vms, ...figures } };
    const outcome = (await storeReports(database, [one])).get(serverUuid);
    if (outcome !== 'stored') throw new Error(`the report of ${serverUuid} is ${outcome}`);
  };

  const newServer = async ({
    uuid = randomUUID(),
    ram = 65_536,
    disk = 1_000_000,
    cores = 16,
    status = 'running',
    sysinfo = {},
    properties = {},
    vms = {},
  }: ServerRoom = {}) => {
    await servers.recordSysinfo(uuid, {
      UUID: uuid,
      Hostname: `h-${uuid.slice(0, 8)}`,
      Setup: 'true',
      'MiB of Memory': ram,
      'CPU Total Cores': cores,
      'Live Image': '20300101T000000Z',
      'Network Interfaces': { eth0: { 'NIC Names': ['admin', 'external'], 'Link Status': 'up' } },
      ...sysinfo,
    });
    await servers.update(uuid, { reservation_ratio: 0, ...properties }, 0);
    await database.query(
      `insert into cnapi_roster_authority (server_uuid, status, epoch, reason, since)
         values ($1, $2, 1, 'session-began', now())`,
      [uuid, status],
    );
    await report(uuid, vms, disk);
    return uuid;
  };

  /** Claims that count, by server. */
  const claims = async () => {
    const { rows } = await database.query<{ server_uuid: string; vm_uuid: string; ram: number }>(
      'select server_uuid, vm_uuid, ram from cnapi_placement_claims order by vm_uuid',
    );
    return rows;
  };
  return { servers, newServer, report, claims };
}

/**
 * The choice of a server for a VM among ten thousand with a hundred thousand VMs, compared with a
 * plain read of one server by the same instance.
 */
import { simulatedSysinfo } from '../../../lib/agent/simulated/simulated-sysinfo.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { BenchCaller, expectStatus } from '../caller.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { type Summary, summarize } from '../statistics.ts';
import { number } from '../table.ts';
import type { Instance, Zone } from '../zone.ts';

const FULL = { servers: 10_000, samples: 200 };
const QUICK = { servers: 500, samples: 20 };
const VMS_EACH = 10;
const WARM_UP = 20;

export const placement: Figure = {
  name: 'placement',
  says: 'POST /allocate with 10,000 servers that have real sysinfo and 100,000 VMs',
  seconds: 60,
  measure,
};

async function measure(context: BenchContext): Promise<readonly Result[]> {
  const { servers, samples } = context.isQuick ? QUICK : FULL;
  // No agent keeps the copies running.
  const config = { legacyHeartbeatLifetimeMs: 86_400_000 };
  await using zone = await context.startZone({ instances: 1, config });
  using caller = new BenchCaller();
  const { url } = zone.instances[0] as Instance;
  const first = await addFirst(caller, url);
  await addOthers(zone, first, servers);
  await zone.sql('analyze');
  const [own, plain] = await inTurn(caller, { url, first, samples });
  return [
    {
      what: `POST /allocate among ${number(servers)} servers with ${number(servers * VMS_EACH)} VMs, p50`,
      value: own.median,
      unit: 'ms',
      floor: { of: 'GET /servers/:uuid', value: plain.median },
      limit: { on: 'value', atMost: 20 },
      notes: [
        `p10 ${number(own.p10)}, p90 ${number(own.p90)}, p99 ${number(own.p99)} ms; GET p90 ${number(plain.p90)} ms`,
      ],
    },
  ];
}

/** A server as an agent with real sysinfo makes it. */
async function addFirst(caller: BenchCaller, url: string): Promise<string> {
  const serverUuid = random.uuid();
  const real = { serverUuid, number: 1, agentVersion: 'bench', sysinfoSize: 'real', bootedAt: 0 } as const;
  const sysinfo = { ...simulatedSysinfo(real), Setup: 'true' };
  expectStatus(await caller.post(`${url}/servers/${serverUuid}/sysinfo`, { sysinfo }), 200);
  const diskinfo = { pool_size_bytes: 4e12 };
  expectStatus(await caller.post(`${url}/servers/${serverUuid}/events/status`, { vms: {}, diskinfo }), 204);
  return serverUuid;
}

/** Copies of it, which run, each with its VMs. */
async function addOthers(zone: Zone, first: string, servers: number): Promise<void> {
  await zone.sql(
    `insert into cnapi_servers (_key, _value, _etag, _mtime)
       select u.uuid, s._value || jsonb_build_object('uuid', u.uuid), 'bench', now()
         from cnapi_servers s, lateral (
           select gen_random_uuid()::text as uuid from generate_series(2, $2::int) where s.uuid is not null) u
         where s.uuid = $1`,
    [first, servers],
  );
  await zone.sql(
    `insert into cnapi_server_sysinfo (server_uuid, digest, sysinfo, stored_at)
       select s.uuid, i.digest, i.sysinfo, now() from cnapi_servers s, cnapi_server_sysinfo i
         where s.uuid <> $1 and i.server_uuid = $1`,
    [first],
  );
  await zone.sql(
    `insert into cnapi_server_reports (server_uuid, vms, memory, disk, stored_at)
       select s.uuid, '{}', r.memory, r.disk, now() from cnapi_servers s, cnapi_server_reports r
         where s.uuid <> $1 and r.server_uuid = $1`,
    [first],
  );
  await zone.sql(
    `insert into cnapi_roster_authority (server_uuid, status, epoch, reason, since)
       select s.uuid, 'running', 1, 'session-began', now() from cnapi_servers s where s.uuid is not null
       on conflict do nothing`,
  );
  await zone.sql(
    `insert into cnapi_vms (_key, _value, _etag, _mtime)
       select v.uuid, jsonb_build_object('uuid', v.uuid, 'server_uuid', s.uuid, 'owner_uuid', v.owner, 'brand', 'oci',
             'alias', 'vm-' || v.number, 'image_uuid', s.uuid, 'state', 'running', 'zone_state', 'running',
             'max_physical_memory', 512, 'quota', 10, 'cpu_cap', 100, 'last_modified', now()), 'bench', now()
         from cnapi_servers s, lateral (
           select gen_random_uuid()::text as uuid, gen_random_uuid() as owner, n as number
             from generate_series(1, $1::int) n where s.uuid is not null) v
         where s.uuid is not null`,
    [VMS_EACH],
  );
}

/** Alternates between the two, so that other load on the machine affects both. */
async function inTurn(
  caller: BenchCaller,
  { url, first, samples }: { url: string; first: string; samples: number },
): Promise<[Summary, Summary]> {
  const times: [number[], number[]] = [[], []];
  for (let each = -WARM_UP; each < samples; each++) {
    const vm = { vm_uuid: random.uuid(), owner_uuid: random.uuid(), ram: 1024, quota: 10_240, cpu_cap: 100 };
    const allocated = expectStatus(await caller.post(`${url}/allocate`, { vm, image: {}, nic_tags: [] }), 200);
    const read = expectStatus(await caller.get(`${url}/servers/${first}`), 200);
    if (each < 0) continue;
    times[0].push(allocated.ms);
    times[1].push(read.ms);
  }
  return [summarize(times[0]), summarize(times[1])];
}

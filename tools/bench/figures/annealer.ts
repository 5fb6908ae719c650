/**
 * A graph of ten thousand noderoles: its commit, and its run by an instance until all are active.
 * The roles do nothing, so what is measured is the annealer itself.
 */
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { BenchCaller, expectStatus } from '../caller.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { number } from '../table.ts';
import type { Instance, Zone } from '../zone.ts';

const FULL = { servers: 500, roles: 20 };
const QUICK = { servers: 20, roles: 5 };
/** A role requires those so many places before it. */
const PARENTS = [1, 2, 4];
const LIMIT_MS = 300_000;
const POLL_MS = 50;

export const annealer: Figure = {
  name: 'annealer',
  says: 'a graph of 10,000 noderoles on 500 servers: its commit, and its run until all are active',
  seconds: 40,
  measure,
};

async function measure(context: BenchContext): Promise<readonly Result[]> {
  const { servers, roles } = context.isQuick ? QUICK : FULL;
  const config = { annealerMaxRuns: 10_000, legacyHeartbeatLifetimeMs: 86_400_000 };
  await using zone = await context.startZone({ instances: 1, config });
  using caller = new BenchCaller();
  const { url } = zone.instances[0] as Instance;
  const uuids = await addServers(zone, caller, { url, servers });
  const deployment = await defineRoles(caller, { url, roles });
  const last = `r${roles - 1}`;
  const bind = `${url}/deployments/${deployment}/noderoles`;
  expectStatus(await caller.post(bind, { role: last, servers: uuids }), 200);
  await zone.sql('analyze');
  const committed = expectStatus(await caller.post(`${url}/deployments/${deployment}/commit`, {}), 200);
  const begun = clock.now();
  await untilActive(zone);
  const seconds = (clock.now() - begun) / 1000;
  const floorBegun = clock.now();
  await zone.sql("update cnapi_noderoles set state_since = state_since + interval '1 ms'");
  const floorMs = clock.now() - floorBegun;
  const total = servers * roles;
  return [
    {
      what: `commit of ${number(total)} noderoles`,
      value: committed.ms,
      unit: 'ms',
      floor: { of: 'a plain update of as many', value: floorMs },
      limit: { on: 'value', atMost: 2_000 },
      notes: [`${number(servers)} servers, ${number(roles)} roles, each with up to ${PARENTS.length} parents`],
    },
    {
      what: `${number(total)} noderoles that do nothing, until all are active`,
      value: total / seconds,
      unit: '/s',
      notes: [`${number(seconds)} s, in ${number(roles)} cohorts, with annealerMaxRuns 10,000`],
    },
  ];
}

/** Copies of one server, which run, as far as the database says. */
async function addServers(
  zone: Zone,
  caller: BenchCaller,
  { url, servers }: { url: string; servers: number },
): Promise<string[]> {
  const first = random.uuid();
  expectStatus(
    await caller.post(`${url}/servers/${first}/sysinfo`, { sysinfo: { UUID: first, Hostname: 'one' } }),
    200,
  );
  const uuids = [first, ...Array.from({ length: servers - 1 }, () => random.uuid())];
  await zone.sql(
    `insert into cnapi_servers (_key, _value, _etag, _mtime)
       select u, s._value || jsonb_build_object('uuid', u), 'bench', now()
         from cnapi_servers s, unnest($2::text[]) u where s._key = $1::text and u <> $1::text`,
    [first, uuids],
  );
  await zone.sql(
    `insert into cnapi_roster_authority (server_uuid, run, epoch, status, reason, since)
       select u, gen_random_uuid(), 1, 'running', 'session-began', now() from unnest($1::uuid[]) u
       on conflict (server_uuid) do update set run = excluded.run, status = 'running'`,
    [uuids],
  );
  return uuids;
}

/** Returns the deployment. */
async function defineRoles(caller: BenchCaller, { url, roles }: { url: string; roles: number }): Promise<string> {
  for (let place = 0; place < roles; place += 1) {
    const requires = PARENTS.filter((before) => place >= before).map((before) => `r${place - before}`);
    const role = { name: `r${place}`, jig: 'noop', flags: ['implicit'], requires };
    expectStatus(await caller.post(`${url}/roles`, role), 201);
  }
  const uuid = random.uuid();
  expectStatus(await caller.post(`${url}/deployments`, { uuid, name: 'bench' }), 201);
  return uuid;
}

async function untilActive(zone: Zone): Promise<void> {
  const begun = clock.now();
  for (;;) {
    const [row] = await zone.sql<{ left: number }>(
      `select count(*)::int as left from cnapi_noderoles where state <> 'active'`,
    );
    if (row?.left === 0) return;
    if (clock.now() - begun > LIMIT_MS) throw new Error(`${row?.left} noderoles are not active after ${LIMIT_MS} ms`);
    await clock.sleep(POLL_MS);
  }
}

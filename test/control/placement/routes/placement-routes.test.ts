/** `POST /allocate` and `POST /capacity` over whole instances. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import type { Allocation, Capacities } from '../../../../lib/protocol/api/placement.ts';
import type { JsonObject } from '../../../../lib/protocol/json/bounded-json.ts';
import { freshZone } from '../../../support/apps.ts';
import { placementZone, withoutAgents } from '../support/placement-zone.ts';

const OWNER = randomUUID();

const payload = (vm: JsonObject = {}, further: JsonObject = {}) => ({
  vm: { vm_uuid: randomUUID(), owner_uuid: OWNER, ram: 1024, quota: 10_240, cpu_cap: 100, ...vm },
  image: { uuid: randomUUID() },
  package: {},
  nic_tags: [],
  ...further,
});

async function world(t: Test, config: Record<string, unknown> = {}) {
  const zone = await freshZone(t);
  const startApp = () => zone.startApp({ ...withoutAgents, ...config });
  return { ...zone, startApp, app: await startApp(), ...(await placementZone(t, zone.database)) };
}

t.test('200 allocations at the same time at three instances fill the room, and no more', async (t) => {
  const { startApp, app, newServer, claims } = await world(t);
  const apps = [app, await startApp(), await startApp()];
  // Ten VMs fit on each of the six servers.
  for (let number = 0; number < 6; number++) await newServer({ ram: 10_240 + number });
  const answers = await Promise.all(
    Array.from({ length: 200 }, (_, number) =>
      apps[number % 3]?.post<Allocation & { code?: string }>('/allocate', payload()),
    ),
  );
  const chosen = answers.filter((answer) => answer?.status === 200);
  const refused = answers.filter(
    (answer) => answer?.status === 409 && answer.body.code === 'NoAllocatableServersError',
  );
  t.equal(chosen.length, 60);
  t.equal(refused.length, 140);
  const perServer = Map.groupBy(await claims(), ({ server_uuid }) => server_uuid);
  t.strictSame(
    [...perServer.values()].map(({ length }) => length),
    [10, 10, 10, 10, 10, 10],
  );
  const named = Map.groupBy(chosen, (answer) => answer?.body.server?.uuid ?? '');
  t.strictSame(
    [...named].map(([uuid, group]) => [uuid, group.length]).toSorted(),
    [...perServer].map(([uuid, group]) => [uuid, group.length]).toSorted(),
    'each caller was told the server of its claim',
  );
});

t.test('requests for one VM at several instances at once get one server', async (t) => {
  const { startApp, app, newServer, claims } = await world(t);
  const apps = [app, await startApp()];
  for (let number = 0; number < 5; number++) await newServer();
  const request = payload();
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, number) => apps[number % 2]?.post<Allocation>('/allocate', request)),
  );
  t.equal(new Set(answers.map((answer) => answer?.body.server?.uuid)).size, 1);
  t.equal((await claims()).length, 1);
});

t.test('an allocation answers with the whole server, its steps, and what was left of it', async (t) => {
  const { app, newServer } = await world(t);
  const uuid = await newServer({ ram: 4096, cores: 2, disk: 100_000, properties: { rack_identifier: 'r1' } });
  const { status, body } = await app.post<Allocation>('/allocate', payload());
  t.equal(status, 200);
  t.match(body.server, {
    uuid,
    status: 'running',
    rack_identifier: 'r1',
    unreserved_ram: 4096,
    unreserved_cpu: 200,
    unreserved_disk: 100_000,
    overprovision_ratios: { cpu: 4, ram: 1, disk: 1 },
  });
  t.strictSame(body.steps[0], { step: 'hard-filter-setup', remaining: [uuid] });
  t.strictSame(body.imgapiPeers, []);
  t.strictSame((await app.post<Capacities>('/capacity')).body, {
    capacities: { [uuid]: { cpu: 175, ram: 3072, disk: 89_760 } },
    errors: {},
  });
});

t.test('a claim whose server stopped running is given up for another server', async (t) => {
  const { app, newServer, database } = await world(t);
  const first = await newServer();
  const request = payload();
  t.equal((await app.post<Allocation>('/allocate', request)).body.server?.uuid, first);
  const second = await newServer();
  t.equal((await app.post<Allocation>('/allocate', request)).body.server?.uuid, first, 'while it runs');
  await database.query(`update cnapi_roster_authority set status = 'unknown' where server_uuid = $1`, [first]);
  t.equal((await app.post<Allocation>('/allocate', request)).body.server?.uuid, second);
});

t.test('a refusal sums up why, and explain shows every step and claims nothing', async (t) => {
  const { app, newServer, claims } = await world(t);
  const small = await newServer({ ram: 512 });
  const silent = await newServer({ status: 'unknown' });
  const refusal = await app.post<{ code: string; message: string }>('/allocate', payload());
  t.equal(refusal.status, 409);
  t.match(refusal.body.message, /^No compute resources available: none of 2 servers is left: /);
  t.match(refusal.body.message, /hard-filter-running dropped 1 \(h-\w+ is not running\)/);
  const explained = await app.post<Allocation>('/allocate', payload({}, { explain: true }));
  t.equal(explained.status, 200);
  t.equal(explained.body.server, null);
  const stepOf = (name: string) => explained.body.funnel?.find(({ step }) => step === name);
  t.strictSame(stepOf('hard-filter-running'), {
    step: 'hard-filter-running',
    before: 2,
    dropped: 1,
    reasons: { [silent]: 'is not running' },
  });
  t.match(stepOf('hard-filter-min-ram'), { before: 1, dropped: 1, reasons: { [small]: /has 512 MiB of memory left/ } });
  const { body } = await app.post<Allocation>('/allocate?explain=true', payload({ ram: 256 }));
  t.equal(body.server?.uuid, small);
  t.strictSame(await claims(), []);
});

t.test('only the servers of the request are considered', async (t) => {
  const { app, newServer } = await world(t);
  const [, wanted] = [await newServer(), await newServer()];
  for (let count = 0; count < 3; count++) {
    const { body } = await app.post<Allocation>('/allocate', payload({}, { servers: [wanted] }));
    t.equal(body.server?.uuid, wanted);
  }
  t.equal((await app.post('/allocate', payload({}, { servers: [randomUUID()] }))).status, 409);
  const { body } = await app.post<Capacities>('/capacity', { servers: [wanted] });
  t.strictSame(Object.keys(body.capacities), [wanted]);
});

t.test('wrong requests are refused with 500, as by the reference', async (t) => {
  const { app } = await world(t);
  for (const [field, message, request] of [
    ['vm', '"vm.vm_uuid" is an invalid UUID', payload({ vm_uuid: 'x' })],
    ['vm', '"vm.owner_uuid" is an invalid UUID', payload({ owner_uuid: undefined })],
    ['vm', '"vm.ram" is not a number above 0 (MiB)', payload({ ram: '1' })],
    [
      'vm',
      '"vm.locality.near" is neither a UUID nor a list of at most 100 UUIDs',
      payload({ locality: { near: 'x' } }),
    ],
    [
      'vm',
      '"vm.ram" is smaller than "image.requirements.min_ram", 2048',
      payload({}, { image: { requirements: { min_ram: 2048 } } }),
    ],
    ['image', 'value is not an object. (was: [object String])', payload({}, { image: 'x' })],
    ['package', '"package.overprovision_cpu" is not a number', payload({}, { package: { overprovision_cpu: 'x' } })],
    ['servers', 'invalid server UUID', payload({}, { servers: ['x'] })],
    ['nic_tags', 'invalid nic_tag', payload({}, { nic_tags: [1] })],
    [
      'nic_tag_requirements',
      'value was not an array of arrays of strings',
      payload({}, { nic_tag_requirements: ['external'] }),
    ],
  ] as const) {
    const { status, body } = await app.post<JsonObject>('/allocate', request);
    t.equal(status, 500, message);
    t.match(body, { code: 'InvalidParameters' });
    t.strictSame(body.errors, [{ field, code: 'Invalid', message }]);
  }
  t.match(await app.post('/capacity', { servers: ['x'] }), { status: 500, body: { code: 'InvalidParameters' } });
});

t.test('an unknown step or weight of the configuration is refused with the name that is meant', async (t) => {
  const zone = await freshZone(t);
  await t.rejects(zone.startApp({ placementSteps: ['hard-filter-setups'] }), {
    message: /hard-filter-setups is not a step of placement; did you mean hard-filter-setup\?/,
  });
  await t.rejects(zone.startApp({ placementWeights: { unreserved_rams: 1 } }), {
    message: /unreserved_rams is not one of .*; did you mean unreserved_ram\?/,
  });
});

/**
 * How servers are searched: in chunks from a random uuid on, and what happens between choice and
 * claim.
 */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { parseConfig } from '../../../lib/control/config.ts';
import { Allocator } from '../../../lib/control/placement/allocator.ts';
import type { PlacementRequest } from '../../../lib/control/placement/request.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { messageOf } from '../../../lib/platform/errors.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { aRequest } from './support/candidates.ts';
import { placementZone } from './support/placement-zone.ts';

const OWNER = randomUUID();

async function world(t: Test) {
  const { database, url } = await freshDatabase(t, { migrations });
  const zone = await placementZone(t, database);
  /** `start`: where the search begins. `before`: called before each statement with its name. */
  const allocator = ({ start = uuidOf(0), before = async (_: string) => {}, config = {} } = {}) => {
    const watched: Queryable = {
      async query(text, values, options) {
        await before(options?.name ?? '');
        return database.query(text, values, options);
      },
    };
    const random = { uuid: () => start, fraction: () => 0.5 };
    return new Allocator({ database: watched, random, config: parseConfig({ databaseUrl: url, ...config }) });
  };
  const request = (overrides: Partial<PlacementRequest> = {}) =>
    aRequest({ vmUuid: randomUUID(), ownerUuid: OWNER, size: { ram: 1024, disk: 0, cpu: 100 }, ...overrides });
  return { ...zone, database, allocator, request };
}

/** The uuid of a server. The uuids have the order of the numbers. */
const uuidOf = (number: number) => `${number.toString(16).padStart(8, '0')}-0000-4000-8000-000000000000`;

t.test('all servers are tried, wherever the search begins', async (t) => {
  const { newServer, database, allocator, request, servers } = await world(t);
  // Without cores they have no room; only one of 700 has.
  await newServer({ uuid: uuidOf(1) });
  await database.query(
    `insert into cnapi_servers (_key, _value, _etag, _mtime)
       select u.uuid, s._value || jsonb_build_object('uuid', u.uuid), 'e', now()
         from cnapi_servers s, lateral (
           select to_hex(n + 4096) || '0000-0000-4000-8000-000000000000' as uuid from generate_series(1, 699) n) u
         where s.uuid = $1`,
    [uuidOf(1)],
  );
  t.equal((await servers.counts()).unknown, 699);
  for (const start of [uuidOf(0), uuidOf(1), uuidOf(2), 'ffffffff-0000-4000-8000-000000000000']) {
    let chunks = 0;
    const before = async (name: string) => {
      if (name === 'read placement chunk') chunks += 1;
    };
    const { candidate } = await allocator({ start, before }).allocate(request());
    t.equal(candidate?.uuid, uuidOf(1), `from ${start}`);
    t.ok(chunks <= 7, `${chunks} chunks`);
  }
  await t.rejects(allocator().allocate(request({ size: { ram: 1e6, disk: 0, cpu: 1 } })), {
    code: 'NoAllocatableServersError',
    message: /none of 700 servers is left: hard-filter-running dropped 699 .*, hard-filter-min-ram dropped 1/,
  });
});

t.test(
  'when others take the room on the best server, the next one is tried, then the chunk is read again',
  async (t) => {
    const { newServer, database, allocator, request } = await world(t);
    const [best, next] = [await newServer({ ram: 4096 }), await newServer({ ram: 2048 })];
    let isFirst = true;
    /** Fills these servers before the first claim. */
    const fill = (uuids: readonly string[]) => async (name: string) => {
      if (name !== 'claim placement' || !isFirst) return;
      isFirst = false;
      await database.query(
        `insert into cnapi_placement_claims (vm_uuid, server_uuid, owner_uuid, ram, disk, cpu, created_at, expires_at)
         select gen_random_uuid()::text, u, 'other', 4096, 0, 100, now(), now() + interval '1 hour' from unnest($1::uuid[]) u`,
        [uuids],
      );
    };
    const first = allocator({ before: fill([best]) });
    t.equal((await first.allocate(request())).candidate?.uuid, next);
    t.equal(first.stats.lostClaims, 1);
    isFirst = true;
    const third = await newServer({ ram: 1024, properties: { rack_identifier: 'r' } });
    // Soft filters leave out the servers without a rack, until there is no other room.
    const second = allocator({ before: fill([third]) });
    const owned = request({ locality: undefined });
    t.equal((await second.allocate(owned)).candidate?.uuid, next);
  },
);

t.test('a server that is rebooting, or that a job reboots or resets, is not chosen', async (t) => {
  const { newServer, database, allocator, request, servers } = await world(t);
  const free = await newServer();
  const [drained, reset, other, rebooting] = [
    await newServer(),
    await newServer(),
    await newServer(),
    await newServer({ properties: { transitional_status: 'rebooting' } }),
  ];
  await database.query(
    'update cnapi_servers set _value = _value || \'{"transitional_epoch": 1}\' where uuid = $1::uuid',
    [rebooting],
  );
  const jobs: [name: string, serverUuid: string, execution: string][] = [
    ['server-reboot', drained, 'running'],
    ['server-factory-reset', reset, 'queued'],
    ['server-update-nics', other, 'running'],
    ['server-reboot', free, 'failed'],
  ];
  for (const [name, serverUuid, execution] of jobs)
    await database.query(
      `insert into cnapi_workflow_jobs (id, name, server_uuid, chain, onerror, params, request_hash, execution, ended_at)
         values (gen_random_uuid(), $1::text, $2::uuid, '{}', '{}', '{}', '', $3::text,
           case when $3::text = 'failed' then now() end)`,
      [name, serverUuid, execution],
    );
  for (const start of [drained, reset, rebooting])
    t.ok([free, other].includes((await allocator({ start }).allocate(request())).candidate?.uuid ?? 'none'));
  const isGone = async (uuid: string) => servers.update(uuid, { reserved: true }, 0);
  await isGone(free);
  await isGone(other);
  const steps = { placementSteps: ['hard-filter-reserved', 'hard-filter-running'] };
  const message = await allocator({ config: steps })
    .allocate(request())
    .then(
      () => '',
      (error: unknown) => messageOf(error),
    );
  t.match(message, /hard-filter-running dropped 3 /);
});

t.test('a caller that holds room for as many VMs as it may gets no more, and the limit has a name', async (t) => {
  const { newServer, allocator, request } = await world(t);
  await newServer();
  const own = allocator({ config: { placementClaimsPerCaller: 1 } });
  const mine = request();
  await own.allocate(mine, { caller: 'me' });
  await own.allocate(mine, { caller: 'me' });
  await t.rejects(own.allocate(request(), { caller: 'me' }), {
    ...{ code: 'TooManyClaims', statusCode: 429, message: /room for 1 VMs.*placementClaimsPerCaller/ },
  });
  t.equal(own.stats.overQuota, 1);
  await own.allocate(request(), { caller: 'another' });
  await allocator({ config: { placementClaimsPerCaller: 0 } }).allocate(request(), { caller: 'me' });
});

t.test('volumes are on the server of their VM, and a VM of another owner is nowhere', async (t) => {
  const { newServer, report, allocator, request } = await world(t);
  const [one] = [await newServer(), await newServer()];
  const [mine, theirs] = [randomUUID(), randomUUID()];
  const vm = { state: 'running', max_physical_memory: 128, quota: 1, cpu_cap: 10 };
  await report(one, {
    [mine]: { ...vm, uuid: mine, owner_uuid: OWNER },
    [theirs]: { ...vm, uuid: theirs, owner_uuid: randomUUID() },
  });
  for (let count = 0; count < 3; count++)
    t.equal((await allocator().allocate(request({ volumesFrom: [mine] }))).candidate?.uuid, one);
  await t.rejects(allocator().allocate(request({ volumesFrom: [randomUUID()] })), {
    code: 'VolumeServerNoResourcesError',
  });
  const near = (uuid: string) => request({ locality: { isStrict: true, near: [uuid], far: [] } });
  t.equal((await allocator().allocate(near(mine))).candidate?.uuid, one);
  await t.rejects(allocator().allocate(near(theirs)), { code: 'NoAllocatableServersError' });
});

t.test('servers on both sides of where the search begins are compared', async (t) => {
  const { newServer, allocator, request } = await world(t);
  await newServer({ uuid: uuidOf(1) });
  await newServer({ uuid: uuidOf(3) });
  const { result } = await allocator({ start: uuidOf(2) }).explain(request());
  t.equal(result.steps[0]?.before, 2);
});

t.test('hints count VMs of the owner for which room is held', async (t) => {
  const { newServer, allocator, request } = await world(t);
  await newServer();
  await newServer();
  const first = request();
  const held = (await allocator().allocate(first)).candidate?.uuid;
  const strict = { isStrict: true, near: [], far: [] };
  const near = request({ locality: { ...strict, near: [first.vmUuid] } });
  t.equal((await allocator().allocate(near)).candidate?.uuid, held);
  const far = request({ locality: { ...strict, far: [first.vmUuid] } });
  t.not((await allocator().allocate(far)).candidate?.uuid, held);
});

t.test('a VM that is being created on a server that stopped running gets no other one', async (t) => {
  const { newServer, database, allocator, request } = await world(t);
  const server = await newServer();
  const wanted = request();
  await allocator().allocate(wanted);
  await database.query(`insert into cnapi_vms (_key, _value, _etag, _mtime) values ($1, $2, 'e', now())`, [
    wanted.vmUuid,
    JSON.stringify({ uuid: wanted.vmUuid, server_uuid: server, state: 'provisioning', control: { unreported: true } }),
  ]);
  await database.query(`update cnapi_roster_authority set status = 'unknown'`);
  await newServer();
  await t.rejects(allocator().allocate(wanted), {
    message: `No compute resources available: VM ${wanted.vmUuid} is being created on server ${server}`,
  });
});

t.test('a server whose last two VMs have failed gets no more', async (t) => {
  const { newServer, report, allocator, request } = await world(t);
  const server = await newServer();
  const [one, two] = [randomUUID(), randomUUID()];
  const vm = { max_physical_memory: 128, quota: 1, cpu_cap: 10, state: 'failed' };
  await report(server, { [one]: { ...vm, uuid: one } });
  t.equal((await allocator().allocate(request())).candidate?.uuid, server);
  await report(server, { [one]: { ...vm, uuid: one }, [two]: { ...vm, uuid: two } });
  await t.rejects(allocator().allocate(request()), { message: /hard-filter-sick-servers/ });
});

t.test('a limit whose step the configuration leaves out is not guarded', async (t) => {
  const { newServer, allocator, request } = await world(t);
  const server = await newServer({ ram: 512 });
  await t.rejects(allocator().allocate(request()), { code: 'NoAllocatableServersError' });
  const config = { placementSteps: ['hard-filter-running', 'hard-filter-min-cpu'] };
  t.equal((await allocator({ config }).allocate(request())).candidate?.uuid, server);
});

/** Claims of room on a server, alone and at the same time, on real Postgres. */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import t, { type Test } from 'tap';
import { readCandidates } from '../../../lib/control/placement/candidate-store.ts';
import { claimRoom, deleteExpiredClaims, readRoomClaim } from '../../../lib/control/placement/claim-store.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { createTask } from '../../../lib/control/tasks/store/task-store.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { countWaiting, runBehindLock } from '../../support/lock-waits.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';
import { placementZone } from './support/placement-zone.ts';

const OWNER = randomUUID();
const NO_LIMITS = { vms: undefined, ram: undefined, disk: undefined, cpu: undefined };
const size = { ram: 1024, disk: 10_240, cpu: 100 };

interface Claiming {
  vmUuid?: string;
  ram?: number;
  limits?: Partial<typeof NO_LIMITS> | { [Name in keyof typeof NO_LIMITS]?: number };
  replacedServer?: string;
  claimMs?: number;
  caller?: string;
  maxClaims?: number;
}

async function world(t: Test) {
  const fresh = await freshDatabase(t, { migrations });
  const zone = await placementZone(t, fresh.database);
  const claim = (serverUuid: string, wanted: Claiming = {}, database: Queryable = fresh.database) =>
    claimRoom(database, {
      ...size,
      vmUuid: wanted.vmUuid ?? randomUUID(),
      ownerUuid: OWNER,
      ram: wanted.ram ?? size.ram,
      serverUuid,
      limits: { ...NO_LIMITS, ...wanted.limits },
      replacedServer: wanted.replacedServer,
      claimMs: wanted.claimMs ?? 600_000,
      caller: wanted.caller,
      maxClaims: wanted.maxClaims ?? 1_000,
    });
  const load = async (serverUuid: string, vmUuid = '') => {
    const question = { vmUuid, ownerUuid: OWNER, namedVms: [] };
    return (await readCandidates(fresh.database, question, [serverUuid]))[0]?.load;
  };
  const expire = (vmUuid: string) =>
    fresh.database.query(
      `update cnapi_placement_claims set expires_at = now() - interval '2 hours' where vm_uuid = $1`,
      [vmUuid],
    );
  return { ...fresh, ...zone, claim, load, expire };
}

t.test('a caller has the maximum number of claims, not counting what has expired', async (t) => {
  const { newServer, claim, expire, load } = await world(t);
  const [server, other] = [await newServer(), await newServer()];
  const [first, second] = [randomUUID(), randomUUID()];
  const mine = { caller: 'me', maxClaims: 2 };
  const outcomeOf = async (...args: Parameters<typeof claim>) => (await claim(...args))?.outcome;
  t.equal(await outcomeOf(server, { vmUuid: first, ...mine }), 'claimed');
  t.equal(await outcomeOf(other, { vmUuid: second, ...mine }), 'claimed');
  t.equal(await outcomeOf(server, mine), 'many');
  t.match(await load(server), { vms: 1 }, 'nothing is left of it');
  t.equal(await outcomeOf(other, { vmUuid: second, ...mine }), 'claimed', 'an equal request is the same claim');
  t.equal(await outcomeOf(server, { ...mine, caller: 'another' }), 'claimed');
  t.equal(await outcomeOf(server, { maxClaims: 0 }), 'claimed', 'nobody is counted');
  await expire(first);
  t.equal(await outcomeOf(server, mine), 'claimed');
});

t.test(
  'a claim that waits for another one of its caller does not keep the room of its server from others',
  async (t) => {
    const { newServer, claim, url, open } = await world(t);
    const [server, other] = [await newServer(), await newServer()];
    const holder = new pg.Client({ connectionString: url });
    const observer = new pg.Client({ connectionString: url });
    await Promise.all([holder.connect(), observer.connect()]);
    t.teardown(() => Promise.all([holder.end(), observer.end()]));
    await holder.query('begin');
    await holder.query(`select cnapi_claim_room('${randomUUID()}', '${other}', '${OWNER}', 1024, 0, 0,
    null, null, null, null, null, 600000, 'me', 1000)`);
    const mine = claim(server, { caller: 'me' }, open());
    await until(async () => (await countWaiting(observer)) === 1, 'the claim to wait for its caller');
    t.match(await claim(server, { caller: 'another' }), { outcome: 'claimed' });
    await holder.query('commit');
    t.match(await mine, { outcome: 'claimed' }, 'however long it has waited');
  },
);

t.test('a claim is refused when the server would have more than a limit', async (t) => {
  const { newServer, claim } = await world(t);
  const server = await newServer();
  await claim(server);
  for (const [name, limits, outcome] of [
    ['all of it fits exactly', { ram: 2048, disk: 20_480, cpu: 200, vms: 2 }, 'claimed'],
    ['memory', { ram: 3071 }, 'full'],
    ['disk', { disk: 30_719 }, 'full'],
    ['CPU', { cpu: 299 }, 'full'],
    ['the number of VMs', { vms: 2 }, 'full'],
  ] as const) {
    t.match(await claim(server, { limits }), { serverUuid: server, outcome }, name);
  }
  t.match(await claim(randomUUID()), { outcome: 'gone' }, 'of a server that does not exist');
});

t.test('an equal request gets the server of its claim, and another size gets a new one', async (t) => {
  const { newServer, claim, claims, database } = await world(t);
  const [first, second] = [await newServer(), await newServer()];
  const vmUuid = randomUUID();
  t.match(await claim(first, { vmUuid }), { serverUuid: first, outcome: 'claimed' });
  t.match(await claim(first, { vmUuid, limits: { vms: 1 } }), { serverUuid: first, outcome: 'claimed' });
  t.match(await claim(second, { vmUuid }), { serverUuid: first, outcome: 'known' });
  t.equal(await readRoomClaim(database, { ...size, vmUuid, ownerUuid: OWNER }), first);
  t.match(await claim(second, { vmUuid, replacedServer: first }), { serverUuid: second, outcome: 'claimed' });
  t.match(await claim(first, { vmUuid, ram: 2048 }), { serverUuid: first, outcome: 'claimed' });
  t.equal(await readRoomClaim(database, { ...size, vmUuid, ownerUuid: OWNER }), undefined, 'of another size');
  t.strictSame(await claims(), [{ server_uuid: first, vm_uuid: vmUuid, ram: 2048 }]);
});

t.test('a VM counts once: by its claim, then as it is reported', async (t) => {
  const { newServer, claim, load, report, database, expire } = await world(t);
  const server = await newServer();
  const uuid = randomUUID();
  await claim(server, { vmUuid: uuid });
  const once = { vms: 1, ram: 1024, disk: 10_240, cpu: 100, owned: 1 };
  t.match(await load(server), once);
  t.match(await load(server, uuid), { vms: 0, ram: 0 }, 'not for itself');
  await database.query(`insert into cnapi_vms (_key, _value, _etag, _mtime) values ($1, $2, 'e', now())`, [
    uuid,
    JSON.stringify({ uuid, server_uuid: server, state: 'provisioning', control: { unreported: true } }),
  ]);
  t.match(await load(server), once, 'while its task creates it');
  await expire(uuid);
  t.match(await load(server), once, 'however long that takes');
  t.equal(await deleteExpiredClaims(database, 100), 0);
  const reported = { uuid, owner_uuid: OWNER, state: 'running', max_physical_memory: 1024, quota: 10, cpu_cap: 100 };
  await report(server, { [uuid]: reported });
  t.match(await load(server), once, 'when it is reported');
  await report(server, { [uuid]: { ...reported, state: 'failed' } });
  t.match(await load(server), { vms: 1, ram: 0, disk: 10_240, cpu: 0 }, 'a failed VM uses only disk');
});

t.test('a claim ends when it expires, and when its VM is gone', async (t) => {
  const { newServer, claim, claims, load, report, database, expire } = await world(t);
  const server = await newServer();
  const [expiring, destroyed] = [randomUUID(), randomUUID()];
  await claim(server, { vmUuid: expiring });
  await claim(server, { vmUuid: destroyed });
  await expire(expiring);
  t.match(await load(server), { vms: 1 });
  await report(server, { [destroyed]: { uuid: destroyed, max_physical_memory: 1024, state: 'running' } });
  await report(server, {});
  t.match(await load(server), { vms: 0, ram: 0 });
  t.equal(await deleteExpiredClaims(database, 100), 1);
  t.strictSame(await claims(), []);
});

t.test('the remains of a failed VM do not count for the room in which it is made again', async (t) => {
  const { newServer, claim, claims, load, report, expire } = await world(t);
  const server = await newServer();
  const uuid = randomUUID();
  const remains = { uuid, owner_uuid: OWNER, state: 'failed', max_physical_memory: 1024, quota: 40, cpu_cap: 100 };
  await report(server, { [uuid]: remains });
  await claim(server, { vmUuid: uuid });
  t.match(await load(server), { vms: 1, ram: 1024, disk: 40_960, cpu: 100 }, 'of the disks the larger one');
  t.match(await claim(server, { limits: { ram: 2047 } }), { outcome: 'full' });
  await report(server, {});
  t.equal((await claims()).length, 1, 'a claim that is younger than the remains stays when they are gone');
  await report(server, { [uuid]: remains });
  await expire(uuid);
  t.match(await load(server), { vms: 1, ram: 0, disk: 40_960 });
});

t.test('the room of a VM that is being created does not move', async (t) => {
  const { newServer, claim, database, expire } = await world(t);
  const [first, second] = [await newServer(), await newServer()];
  const vmUuid = randomUUID();
  await claim(first, { vmUuid });
  await expire(vmUuid);
  t.match(await claim(second, { vmUuid }), { serverUuid: second, outcome: 'claimed' }, 'an expired one does');
  await database.query(`insert into cnapi_vms (_key, _value, _etag, _mtime) values ($1, $2, 'e', now())`, [
    vmUuid,
    JSON.stringify({ uuid: vmUuid, server_uuid: second, state: 'provisioning', control: { unreported: true } }),
  ]);
  await expire(vmUuid);
  t.equal(await readRoomClaim(database, { ...size, vmUuid, ownerUuid: OWNER }), second);
  t.match(await claim(first, { vmUuid }), { serverUuid: second, outcome: 'known' });
  for (const [name, wanted] of [
    ['another size', { ram: 2048 }],
    ['given up there', { replacedServer: second }],
  ] as const)
    t.match(await claim(first, { vmUuid, ...wanted }), { serverUuid: second, outcome: 'creating' }, name);
  t.match(await claim(second, { vmUuid }), { outcome: 'claimed' }, 'held longer');
});

t.test('a claim whose row is locked is left alone, and others get room on the same server', async (t) => {
  const { newServer, claim, url } = await world(t);
  const server = await newServer();
  const vmUuid = randomUUID();
  await claim(server, { vmUuid });
  const holder = new pg.Client({ connectionString: url });
  await holder.connect();
  t.teardown(() => holder.end());
  await holder.query('begin');
  await holder.query('select 1 from cnapi_placement_claims where vm_uuid = $1 for update', [vmUuid]);
  t.equal(await claim(server, { vmUuid }), undefined);
  t.match(await claim(server), { outcome: 'claimed' });
});

t.test('an open provisioning ticket counts until its VM or its claim does', async (t) => {
  const { newServer, claim, load, database } = await world(t);
  const server = await newServer();
  const id = randomUUID();
  const ticket = (status: string, extra: object, action = 'provision') =>
    database.query(
      `insert into cnapi_waitlist_tickets (uuid, queue, place, server_uuid, scope, id, action, extra, expires_at,
           status, created_at, updated_at)
         values (gen_random_uuid(), (random() * 1e9)::bigint, 1, $1, 'vm', $2, $3, $4, now() + interval '1 hour', $5,
           now(), now())`,
      [server, id, action, JSON.stringify(extra), status],
    );
  const extra = { owner_uuid: OWNER, max_physical_memory: 512, quota: 5, cpu_cap: 50 };
  await ticket('finished', extra);
  await ticket('active', extra, 'destroy');
  t.match(await load(server), { vms: 0 });
  await ticket('queued', extra);
  await ticket('active', extra);
  t.match(await load(server), { vms: 1, ram: 512, disk: 5120, cpu: 50, owned: 1 }, 'once for its VM');
  t.match(await load(server, id), { vms: 0 }, 'not for itself');
  await claim(server, { vmUuid: id });
  t.match(await load(server), { vms: 1, ram: 1024 }, 'the claim knows the size');
});

t.test('a claim waits for one in progress on the same server, and then counts it', async (t) => {
  const { newServer, claim, url } = await world(t);
  const server = await newServer();
  // The holder has claimed the last room, and has not committed.
  const holder = `select cnapi_claim_placement('${randomUUID()}', '${server}', '${OWNER}', 1024, 0, 0,
    null, null, null, null, null, 600000)`;
  const [met] = await runBehindLock<[Awaited<ReturnType<typeof claim>>]>(url, holder, [
    { name: 'claim', run: () => claim(server, { limits: { ram: 1024 } }) },
  ]);
  t.match(met, { outcome: 'full' });
});

t.test('two requests for one VM at the same time get one server', async (t) => {
  const { newServer, claim, claims, url, open } = await world(t);
  const [first, second] = [await newServer(), await newServer()];
  const vmUuid = randomUUID();
  // The holder has claimed on the first server, and has not committed.
  const holder = `select cnapi_claim_placement('${vmUuid}', '${first}', '${OWNER}', 1024, 10240, 100,
    null, null, null, null, null, 600000)`;
  const [met] = await runBehindLock<[Awaited<ReturnType<typeof claim>>]>(url, holder, [
    { name: 'claim', run: () => claim(second, { vmUuid }, open()) },
  ]);
  t.equal(met, undefined, 'it is asked again');
  t.match(await claim(second, { vmUuid }), { serverUuid: first, outcome: 'known' });
  t.equal((await claims()).length, 1);
});

t.test('a claim for a VM that is being removed waits for that, and stays', async (t) => {
  const { newServer, claim, claims, report, url } = await world(t);
  const server = await newServer();
  const vmUuid = randomUUID();
  await claim(server, { vmUuid });
  await report(server, { [vmUuid]: { uuid: vmUuid, max_physical_memory: 1024 } });
  const [met] = await runBehindLock<[Awaited<ReturnType<typeof claim>>]>(
    url,
    `delete from cnapi_vms where _key = '${vmUuid}'`,
    [{ name: 'claim', run: () => claim(server, { vmUuid }) }],
  );
  t.match(met, { serverUuid: server, outcome: 'claimed' });
  t.equal((await claims()).length, 1);
});

t.test('a claim ends when the creation of its VM fails', async (t) => {
  const { newServer, claim, claims, load, database } = await world(t);
  const server = await newServer();
  const vmUuid = randomUUID();
  await claim(server, { vmUuid });
  const task = await createTask(database, {
    id: randomUUID(),
    serverUuid: server,
    name: 'machine_create',
    params: { uuid: vmUuid, image_uuid: randomUUID() },
    maskedParams: undefined,
    timeoutMs: 1000,
    idempotent: true,
    idempotencyKey: undefined,
    requestHash: 'hash',
    requestId: undefined,
    actor: undefined,
    summary: '',
    ticketUuid: undefined,
    record: undefined,
  });
  t.match(await load(server), { vms: 1, ram: 1024 }, 'while the task is under way');
  await database.query(`update cnapi_tasks set state = 'ended', outcome = 'failure', ended_at = now() where id = $1`, [
    task?.id,
  ]);
  t.strictSame(await claims(), []);
  t.match(await load(server), { vms: 0 });
});

t.test('reports of enormous VMs neither overflow a sum nor hide their server', async (t) => {
  const { newServer, load, report } = await world(t);
  const server = await newServer();
  const vm = { state: 'running', max_physical_memory: 1e308, quota: 1e308, cpu_cap: -1 };
  await report(server, { [randomUUID()]: vm, [randomUUID()]: vm, [randomUUID()]: { max_physical_memory: 'x' } });
  t.match(await load(server), { vms: 3, ram: 2e15, cpu: 0 });
});

/**
 * What reports of agents and ends of tasks do to the VMs that are stored. Each test is about one
 * server; the statements are those of the product.
 */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { ZONE_STATES } from '../../../lib/agent/vms/vm-lifecycle.ts';
import { type ReportToStore, storeReports } from '../../../lib/control/servers/server-store.ts';
import { Servers } from '../../../lib/control/servers/servers.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { orRefusal } from '../../../lib/control/tasks/store/task-errors.ts';
import { createTask, type NewTask } from '../../../lib/control/tasks/store/task-store.ts';
import { shownVm, type VmDocument } from '../../../lib/control/vms/vm.ts';
import { vmsBucket } from '../../../lib/control/vms/vm-bucket.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { BucketStore } from '../../../lib/platform/moray/bucket-store.ts';
import { and, eq } from '../../../lib/platform/moray/filter.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import type { JsonObject } from '../../../lib/protocol/json/bounded-json.ts';
import { vm as vmSchema, vmSummary } from '../../../lib/protocol/vms.ts';
import { freshDatabase } from '../../support/postgres.ts';

const at = (second: number) => `2030-01-01T00:00:0${second}.000Z`;

async function world(t: Test) {
  const { database } = await freshDatabase(t, { migrations });
  const servers = new Servers({ database, clock: systemClock, log: silentLogger, datacenter: 'dc' });
  const buckets = new BucketStore({ database });
  await servers.start();
  await buckets.ensureBucket(vmsBucket);
  t.teardown(() => servers.stop());
  const newServer = async (epoch = 5) => {
    const uuid = randomUUID();
    await servers.recordSysinfo(uuid, { UUID: uuid, Hostname: 'a' });
    await database.query(
      `insert into cnapi_roster_authority (server_uuid, status, epoch, reason, since) values ($1, 'running', $2, 'session-began', now())`,
      [uuid, epoch],
    );
    return uuid;
  };
  const report = async (serverUuid: string, vms: Record<string, JsonObject>, epoch: number | undefined = 5) => {
    const one: ReportToStore = { serverUuid, epoch, report: { vms, memory: {}, disk: {} } };
    return (await storeReports(database, [one])).get(serverUuid);
  };
  /**
   * The stored VMs of a server by uuid. Its object must show the same VMs, without the reasons of
   * failures.
   */
  const stored = async (serverUuid: string) => {
    const page = await buckets.page<VmDocument>(vmsBucket, and(eq('server_uuid', serverUuid)), {
      limit: 100,
      after: undefined,
      bytes: 1e6,
    });
    const rows = page.objects.map(({ value }) => {
      const { server_uuid: _, ...vm } = shownVm(value);
      return [vm.uuid, vm] as const;
    });
    const withoutReasons = rows.map(([uuid, { error: _, ...vm }]) => [uuid, vm] as const);
    const ofServer = (await servers.get(serverUuid))?.server.vms;
    t.same(ofServer, Object.fromEntries(withoutReasons), 'the server shows the same VMs');
    return Object.fromEntries(rows);
  };
  const createOf = async (serverUuid: string, uuid: string, key?: string) => {
    const task: NewTask = {
      id: randomUUID(),
      serverUuid,
      name: 'machine_create',
      params: { uuid, image_uuid: randomUUID() },
      maskedParams: undefined,
      timeoutMs: 1000,
      idempotent: true,
      idempotencyKey: key,
      requestHash: 'hash',
      requestId: undefined,
      actor: undefined,
      summary: '',
      ticketUuid: undefined,
      record: undefined,
    };
    return (await createTask(database, task))?.id ?? '';
  };
  const endOf = (id: string, outcome: 'complete' | 'failure', result: unknown = null) =>
    database.query(
      `update cnapi_tasks set state = 'ended', outcome = $2, result = $3::json, ended_at = now() where id = $1`,
      [id, outcome, JSON.stringify(result)],
    );
  const events = async () =>
    (
      await database.query<{ body: { state: string; previous: string | null } }>(
        `select body from cnapi_event_outbox where kind = 'vm' order by id`,
      )
    ).rows.map(({ body }) => `${body.previous} → ${body.state}`);
  return { database, servers, newServer, report, stored, createOf, endOf, events };
}

t.test('reports add, change and remove VMs, and each change of state is an event', async (t) => {
  const { newServer, report, stored, events, database } = await world(t);
  const server = await newServer();
  const [one, two] = [randomUUID(), randomUUID()];
  t.equal(
    await report(server, { [one]: { uuid: one, state: 'running' }, [two]: { uuid: two, state: 'stopped' } }),
    'stored',
  );
  const etags = async () =>
    (await database.query<{ _key: string; _etag: string }>('select _key, _etag from cnapi_vms order by _key')).rows;
  const before = await etags();
  await report(server, { [one]: { uuid: one, state: 'running' }, [two]: { uuid: two, state: 'stopped' } });
  t.same(await etags(), before, 'only changes are written');
  await report(server, { [one]: { uuid: one, state: 'stopping' } });
  t.same(await stored(server), { [one]: { uuid: one, state: 'stopping' } });
  t.same((await events()).toSorted(), [
    'null → running',
    'null → stopped',
    'running → stopping',
    'stopped → destroyed',
  ]);
});

t.test('a server whose VMs change all the time writes few events, also by posts of a legacy agent', async (t) => {
  const { servers, newServer, events } = await world(t);
  const server = await newServer();
  const uuids = Array.from({ length: 1_000 }, () => randomUUID());
  for (const state of ['running', 'stopped', 'running', 'stopped'])
    t.ok(await servers.recordReport(server, { vms: Object.fromEntries(uuids.map((uuid) => [uuid, { uuid, state }])) }));
  t.equal((await events()).length, 2_000, 'a thousand, and the report that exceeds them');
});

t.test('a report of a session that was replaced changes nothing', async (t) => {
  const { newServer, report, stored } = await world(t);
  const server = await newServer(5);
  const uuid = randomUUID();
  t.equal(await report(server, { [uuid]: { uuid, state: 'running' } }, 5), 'stored');
  t.equal(await report(server, {}, 4), 'outdated');
  t.equal(await report(server, {}, 6), 'outdated', 'of an epoch that no session has');
  t.same(await stored(server), { [uuid]: { uuid, state: 'running' } });
});

t.test('a VM that a second server reports stays with the first one until that lacks it', async (t) => {
  const { newServer, report, stored, database } = await world(t);
  const [first, second] = [await newServer(), await newServer()];
  const uuid = randomUUID();
  const vms = { [uuid]: { uuid, state: 'running' } };
  await report(first, vms);
  await report(second, vms);
  const holder = async () => (await database.query('select server_uuid from cnapi_vms')).rows;
  t.same(await holder(), [{ server_uuid: first }]);
  await report(first, {});
  await report(second, vms);
  t.same(await holder(), [{ server_uuid: second }]);
  t.same(await stored(second), vms);
});

t.test('a task that creates a VM claims its uuid, on all servers, until it fails', async (t) => {
  const { newServer, createOf, endOf, stored, report } = await world(t);
  const [here, there] = [await newServer(), await newServer()];
  await report(here, {});
  const uuid = randomUUID();
  const id = await createOf(here, uuid);
  t.match(await stored(here), { [uuid]: { state: 'provisioning', zone_state: ZONE_STATES.provisioning } });
  await report(here, {});
  t.match(await stored(here), { [uuid]: { state: 'provisioning' } }, 'a report that does not have it yet leaves it');
  for (const server of [here, there])
    await createOf(server, uuid).then(
      () => t.fail('it was created twice'),
      (error: unknown) => t.match(orRefusal(error), { code: 'VmExists', statusCode: 409 }),
    );
  await endOf(id, 'failure');
  t.same(await stored(here), {});
  await createOf(there, uuid);
});

t.test('the end of a task changes its VM in the same commit, and older reports do not undo it', async (t) => {
  const { newServer, createOf, endOf, stored, report, database } = await world(t);
  const server = await newServer();
  await report(server, {});
  const uuid = randomUUID();
  const vm = (state: string, second: number) => ({ uuid, state, last_modified: at(second) });
  await endOf(await createOf(server, uuid), 'complete', { vm: vm('running', 2) });
  t.same(await stored(server), { [uuid]: vm('running', 2) });
  await report(server, {});
  t.same(await stored(server), { [uuid]: vm('running', 2) }, 'a report from before the end');
  await report(server, { [uuid]: vm('provisioning', 1) });
  t.same(await stored(server), { [uuid]: vm('running', 2) }, 'another one');
  await report(server, { [uuid]: vm('running', 2) });
  await report(server, { [uuid]: vm('stopped', 4) });
  t.same(await stored(server), { [uuid]: vm('stopped', 4) });
  const task = async (name: string) => {
    const { rows } = await database.query<{ id: string }>(
      `insert into cnapi_tasks (id, server_uuid, name, params, timeout_ms, idempotent, request_hash, created_at, queued_at)
         values (gen_random_uuid(), $1, $2, json_build_object('uuid', $3::text), 1, true, 'h', now(), now()) returning id`,
      [server, name, uuid],
    );
    return rows[0]?.id ?? '';
  };
  await endOf(await task('machine_boot'), 'complete', { vm: vm('running', 3) });
  t.same(await stored(server), { [uuid]: vm('stopped', 4) }, 'an end that is older than the report');
  await endOf(await task('machine_boot'), 'complete', { vm: vm('running', 5) });
  t.same(await stored(server), { [uuid]: vm('running', 5) });
  await endOf(await task('machine_boot'), 'complete', { vm: 'no VM' });
  await endOf(await task('machine_boot'), 'complete', { vm: { uuid, state: '\u0000' } });
  t.same(await stored(server), { [uuid]: vm('running', 5) }, 'what is not a VM');
  await endOf(await task('machine_destroy'), 'complete', {});
  t.same(await stored(server), {});
  await report(server, { [uuid]: vm('destroying', 6) });
  t.same(await stored(server), {}, 'a report from before the destruction');
});

t.test('the end of a task stores the fields that a report has', async (t) => {
  const { newServer, createOf, endOf, stored, report } = await world(t);
  const server = await newServer();
  await report(server, {});
  const uuid = randomUUID();
  const whole = Object.fromEntries(Object.keys(vmSchema.shape).map((field) => [field, field]));
  await endOf(await createOf(server, uuid), 'complete', { vm: { ...whole, uuid } });
  const found = (await stored(server))[uuid] ?? {};
  t.same(Object.keys(found).toSorted(), Object.keys(vmSummary.shape).toSorted());
});

t.test('a server that is removed takes its VMs along', async (t) => {
  const { newServer, report, servers, database } = await world(t);
  const server = await newServer();
  const uuid = randomUUID();
  await report(server, { [uuid]: { uuid, state: 'running' } });
  await servers.remove(server, randomUUID());
  t.same((await database.query('select 1 from cnapi_vms')).rows, []);
});

t.test('a task whose uuid has a NUL character can be created, and ends', async (t) => {
  const { newServer, createOf, endOf, stored, database } = await world(t);
  const server = await newServer();
  const id = await createOf(server, `\0${randomUUID()}`);
  t.equal((await endOf(id, 'complete', { vm: { state: 'running' } })).rowCount, 1);
  t.same(await stored(server), {});
  const { rows } = await database.query('select outcome from cnapi_tasks where id = $1', [id]);
  t.same(rows, [{ outcome: 'complete' }]);
});

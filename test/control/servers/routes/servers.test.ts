import pg from 'pg';
import t from 'tap';
import { matchLists } from '../../../support/match-lists.ts';
import type { FreshDatabase } from '../../../support/postgres.ts';
import { SERVER, setStatus, startApi, UNKNOWN_UUID } from '../../http/support.ts';

t.test('registering a sysinfo creates the server with derived fields and defaults', async (t) => {
  const { call } = await startApi(t);
  const sysinfo = {
    UUID: SERVER,
    Hostname: 'headnode',
    'MiB of Memory': '4095',
    'Boot Time': '1893456000',
    'Live Image': '20200101T000000Z',
    'Boot Parameters': { headnode: 'true' },
    Setup: 'true',
    'System Type': 'SunOS',
    'SDC Agents': [{ name: 'cn-agent', version: '2.15.0' }],
  };
  const registered = await call('POST', `/servers/${SERVER}/sysinfo`, { sysinfo });
  t.equal(registered.status, 200);
  t.equal(registered.text, '');
  const { body } = await call('GET', `/servers/${SERVER}`);
  matchLists(t, body, {
    uuid: SERVER,
    status: 'unknown',
    hostname: 'headnode',
    ram: 4095,
    setup: true,
    headnode: true,
    reserved: false,
    reservoir: false,
    reservation_ratio: 0.15,
    datacenter: 'testdc',
    default_console: 'serial',
    serial: 'ttyb',
    boot_params: {},
    boot_modules: [],
    comments: '',
    rack_identifier: '',
    traits: {},
    last_boot: '2030-01-01T00:00:00.000Z',
    current_platform: '20200101T000000Z',
    agents: [{ name: 'cn-agent', version: '2.15.0' }],
    vms: {},
    last_heartbeat: '2030-01-01T00:00:01.000Z',
  });
  t.same(body.sysinfo, sysinfo);
  t.match(body.created, /^\d{4}-\d\d-\d\dT/);
});

t.test("inputs that crash Triton's CNAPI get a 4xx that names the field", async (t) => {
  const { call, addServer } = await startApi(t);
  await addServer(SERVER);
  const cases: [string, string, string, unknown, number, RegExp][] = [
    [
      "another machine's sysinfo",
      'POST',
      `/servers/${SERVER}/sysinfo`,
      { sysinfo: { UUID: UNKNOWN_UUID } },
      409,
      /sysinfo\.UUID/,
    ],
    ['a sysinfo without UUID', 'POST', `/servers/${SERVER}/sysinfo`, { sysinfo: {} }, 409, /sysinfo\.UUID/],
    ['an invalid date', 'POST', `/servers/${SERVER}`, { next_reboot: 'soon' }, 409, /next_reboot/],
    [
      'an unknown transitional status',
      'POST',
      `/servers/${SERVER}`,
      { transitional_status: 'flying' },
      409,
      /transitional_status/,
    ],
    ['an update of the defaults', 'POST', '/servers/default', { comments: 'x' }, 409, /server_uuid/],
    ['a server id that is not a UUID', 'POST', '/servers/zzz', {}, 409, /Invalid server_uuid/],
    ['a task id that is not a UUID', 'GET', '/tasks/zzz', undefined, 409, /Invalid taskid/],
    ['a wait with a task id that is not a UUID', 'GET', '/tasks/zzz/wait', undefined, 409, /Invalid taskid/],
  ];
  for (const [name, method, path, sent, status, message] of cases) {
    const { status: got, body } = await call(method, path, sent);
    t.equal(got, status, name);
    t.equal(body.code, 'InvalidArgument', name);
    t.match(body.message, message, name);
  }
});

t.test('updates accept known fields only and check the type and rules of each', async (t) => {
  const { call, addServer } = await startApi(t);
  await addServer(SERVER);
  const update = (body: unknown) => call('POST', `/servers/${SERVER}`, body);

  t.same((await update({ hostname: 'x' })).body, {
    code: 'InvalidArgument',
    message: 'hostname is not an explicitly defined parameter',
  });
  const wrong = await update({
    traits: 'x',
    reserved: 'true',
    agents: {},
    comments: ' x',
    etag_retries: 'y',
    boot_params: 7,
  });
  t.equal(wrong.status, 500, "as Triton's CNAPI, because clients may depend on it");
  t.equal(wrong.body.code, 'InvalidParameters');
  t.equal(wrong.body.message, 'Request parameters failed validation');
  t.same(
    wrong.body.errors.sort((a: { field: string }, b: { field: string }) => (a.field < b.field ? -1 : 1)),
    [
      { field: 'agents', code: 'Invalid', message: 'value was not an array' },
      { field: 'boot_params', code: 'Invalid', message: 'value is not an object. (was: [object Number])' },
      { field: 'comments', code: 'Invalid', message: 'value contains leading or trailing whitespace' },
      { field: 'etag_retries', code: 'Invalid', message: 'value was not a number' },
      { field: 'reserved', code: 'Invalid', message: 'value was not true or false' },
      { field: 'traits', code: 'Invalid', message: 'value is not an object. (was: [object String])' },
    ],
  );
  t.same((await call('POST', `/servers/${SERVER}/sysinfo`, {})).body.errors, [
    { field: 'sysinfo', code: 'Invalid', message: 'value is not an object. (was: [object Undefined])' },
  ]);
  for (const [ratios, message] of [
    [{ zz: 1 }, 'Invalid key zz'],
    [{ cpu: '1' }, 'Invalid type for cpu'],
    [{ ram: -1 }, 'Invalid value for ram'],
  ] as const) {
    t.match((await update({ overprovision_ratios: ratios })).body, { code: 'InvalidArgument', message });
  }
  const changed = await update({
    reserved: true,
    traits: { ssd: true },
    next_reboot: '2030-01-01T00:00:00.000Z',
    overprovision_ratios: { ram: 2 },
    nics: [],
    comments: 'mind the step',
  });
  t.equal(changed.status, 204);
  t.equal(changed.text, '');
  const after = (await call('GET', `/servers/${SERVER}`)).body;
  t.match(after, {
    reserved: true,
    traits: { ssd: true },
    next_reboot: '2030-01-01T00:00:00.000Z',
    comments: 'mind the step',
  });
  t.same(after.overprovision_ratios, { cpu: 4, ram: 1, disk: 1 }, 'posted ratios have no effect');
  t.notOk('nics' in after);
  t.equal((await update({ next_reboot: '' })).status, 204);
  t.notOk('next_reboot' in (await call('GET', `/servers/${SERVER}`)).body);
  t.equal((await call('POST', `/servers/${UNKNOWN_UUID}`, {})).body.message, `Server ${UNKNOWN_UUID} not found`);
});

t.test('removing a server disconnects its agent; a second removal is 404', async (t) => {
  const { call, addServer, roster, servers } = await startApi(t);
  await addServer(SERVER);
  t.ok(await servers.sysinfoDigest(SERVER));
  const removed = await call('DELETE', `/servers/${SERVER.toUpperCase()}`);
  t.equal(removed.status, 200);
  t.equal(removed.text, '');
  t.same(roster.removed, [SERVER]);
  t.equal(await servers.sysinfoDigest(SERVER), undefined, 'the agent will be asked for its sysinfo when it reconnects');
  t.equal((await call('DELETE', `/servers/${SERVER}`)).status, 404);
  t.equal((await call('DELETE', '/servers/default')).status, 200);
  t.equal((await call('GET', '/servers/default')).status, 404);
  t.same(roster.removed, [SERVER]);
});

t.test('a removal that fails midway removes nothing and can be repeated', async (t) => {
  const { call, addServer, servers, roster, database } = await startApi(t);
  await addServer(SERVER, { status: 'running' });
  // A transaction holds the roster's row until the removal has failed.
  const holder = new pg.Client({ connectionString: database.url });
  await holder.connect();
  t.teardown(() => holder.end());
  await holder.query(`begin; select 1 from cnapi_roster_authority where server_uuid = '${SERVER}' for update`);
  t.equal((await call('DELETE', `/servers/${SERVER}`)).status, 503);
  await holder.query('rollback');
  t.match(await call('GET', `/servers/${SERVER}`), { status: 200, body: { status: 'running' } });
  t.ok(await servers.sysinfoDigest(SERVER), 'its parts are still there');
  t.same(roster.removed, []);
  t.equal((await call('DELETE', `/servers/${SERVER}`)).status, 200);
  t.equal((await call('GET', `/servers/${SERVER}`)).status, 404);
  t.same(await statusOf(database), { status: 'unknown', reason: 'removed' });
});

t.test('a running server without a document, as an earlier version left them, can be removed', async (t) => {
  const { call, database, roster } = await startApi(t);
  await setStatus(database, SERVER, 'running');
  t.equal((await call('DELETE', `/servers/${SERVER}`)).status, 200);
  t.same(await statusOf(database), { status: 'unknown', reason: 'removed' });
  t.same(roster.removed, [SERVER]);
  t.equal((await call('DELETE', `/servers/${SERVER}`)).status, 404);
});

async function statusOf({ database }: FreshDatabase): Promise<{ status: string; reason: string } | undefined> {
  const sql = 'select status, reason from cnapi_roster_authority where server_uuid = $1::uuid';
  return (await database.query<{ status: string; reason: string }>(sql, [SERVER])).rows[0];
}

t.test('the defaults of new servers can be read and are not listed as a server', async (t) => {
  const { call, addServer } = await startApi(t);
  await addServer(SERVER);
  const { body } = await call('GET', '/servers/default');
  matchLists(t, body, {
    uuid: 'default',
    status: 'unknown',
    last_heartbeat: null,
    boot_modules: [],
    default_console: 'serial',
  });
  t.same(
    (await call('GET', '/servers')).body.map(({ uuid }: { uuid: string }) => uuid),
    [SERVER],
  );
});

t.test('a transitional status shows while the server is away, until its next session', async (t) => {
  const { call, addServer, database } = await startApi(t);
  await addServer(SERVER);
  const status = async () => (await call('GET', `/servers/${SERVER}`)).body.status;
  t.equal(await status(), 'running');
  t.equal((await call('POST', `/servers/${SERVER}`, { transitional_status: 'rebooting' })).status, 204);
  t.equal(await status(), 'running');
  await setStatus(database, SERVER, 'unknown', 1);
  t.equal(await status(), 'rebooting');
  t.equal(
    (await call('POST', `/servers/${SERVER}/nop`)).status,
    409,
    'tasks depend on the real status, not on the one displayed',
  );
  await setStatus(database, SERVER, 'running', 2);
  t.equal(await status(), 'running');
  await setStatus(database, SERVER, 'unknown', 2);
  t.equal(await status(), 'unknown');
  const shown = (await call('GET', `/servers/${SERVER}`)).body;
  t.notOk('transitional_epoch' in shown);
});

t.test('a list of 1,100 servers supports order, paging, filters, extras and fields', async (t) => {
  const { call, addServer, database, servers } = await startApi(t);
  await addServer(SERVER, {
    sysinfo: { Hostname: 'headnode', Setup: 'true', 'Boot Parameters': { headnode: 'true' }, 'MiB of Memory': 1000 },
  });
  await servers.recordReport(SERVER, {
    vms: { [UNKNOWN_UUID]: { uuid: UNKNOWN_UUID, max_physical_memory: 100 } },
    meminfo: { total_bytes: 5, arcsize_bytes: 6, availrmem_bytes: 7 },
    diskinfo: { pool_size_bytes: 8, nonsense: 9 },
  });
  await database.database.query(
    `insert into cnapi_servers (_key, _value, _etag, _mtime)
     select id, jsonb_build_object('uuid', id, 'hostname', 'host-' || n, 'reserved', n % 2 = 0, 'setup', false, 'agents', '[]'::jsonb), 'e', now()
     from (select n, lpad(to_hex(n), 8, '0') || '-0000-4000-8000-000000000000' as id from generate_series(1, 1100) n) s`,
  );
  const list = async (query: string) => (await call('GET', `/servers${query}`)).body;

  const first = await list('?limit=1000');
  const rest = await list('?limit=1000&offset=1000');
  t.equal(first.length, 1000);
  t.equal(rest.length, 101);
  t.equal((await list('')).length, 1000);
  t.same(await list(`?after=${first.at(-1).uuid}`), rest);
  t.same(await list(`?after=${first.at(-1).uuid.toUpperCase()}&offset=100`), rest.slice(100));
  const uuids = [...first, ...rest].map(({ uuid }) => uuid);
  t.same(uuids, uuids.toSorted());
  t.equal(new Set(uuids).size, 1101);

  const two = '00000002-0000-4000-8000-000000000000';
  t.same(
    (await list(`?uuids=${two},${UNKNOWN_UUID},zzz`)).map(({ uuid }: { uuid: string }) => uuid),
    [two],
  );
  t.same((await list(`?uuids=${SERVER.toUpperCase()}`)).length, 1);
  t.equal((await call('GET', `/servers?uuids=${two},`)).status, 500, 'an empty element is refused');
  t.equal((await list('?reserved=true')).length, 550);
  t.equal((await list('?reserved=FALSE')).length, 551);
  t.equal((await list('?setup=true')).length, 1);
  t.equal((await list('?headnode=true&reservoir=false')).length, 1);
  t.equal((await list('?hostname=host-7')).length, 1);
  t.same(await list('?hostname=nobody'), []);

  const plain = (await list(`?uuids=${SERVER}`))[0];
  t.match(plain, { status: 'running', hostname: 'headnode', ram: 1000 });
  for (const absent of ['agents', 'vms', 'sysinfo', 'last_heartbeat', 'memory_total_bytes', 'disk_pool_size_bytes'])
    t.notOk(absent in plain, absent);
  const withExtra = async (extras: string) => (await list(`?uuids=${SERVER}&extras=${extras}`))[0];
  t.same((await withExtra('vms')).vms, { [UNKNOWN_UUID]: { uuid: UNKNOWN_UUID, max_physical_memory: 100 } });
  const memory = await withExtra('memory');
  t.match(memory, {
    memory_total_bytes: 5,
    memory_arc_bytes: 6,
    memory_available_bytes: 7,
    memory_provisionable_bytes: 750 * 1024 * 1024,
  });
  t.notOk('vms' in memory || 'disk_pool_size_bytes' in memory);
  t.equal((await withExtra('disk')).disk_pool_size_bytes, 8);
  t.notOk('disk_nonsense' in (await withExtra('disk')));
  t.equal((await withExtra('sysinfo')).sysinfo.UUID, SERVER);
  t.same((await withExtra('agents')).agents, []);
  const capacity = await withExtra('capacity');
  t.ok('agents' in capacity && 'memory_total_bytes' in capacity && 'disk_pool_size_bytes' in capacity);
  t.notOk('vms' in capacity || 'sysinfo' in capacity);
  const all = await withExtra('all');
  t.ok('vms' in all && 'sysinfo' in all && 'agents' in all);
  t.equal((await withExtra('bogus')).last_heartbeat, '2030-01-01T00:00:01.000Z', 'any extras add last_heartbeat');
  t.equal((await list(`?uuids=${two}&extras=status`))[0].last_heartbeat, null);
  t.same(await list(`?uuids=${SERVER}&fields=uuid,status,sysinfo`), [{ uuid: SERVER, status: 'running' }]);
  t.equal((await list(`?uuids=${two}`))[0].status, 'unknown', 'a server without a roster row is unknown');

  const range = 'limit must be in the range 1-1000 (inclusive)';
  const invalid = (name: string) => `Invalid value for param '${name}'`;
  for (const [query, status, ...messages] of [
    ['limit=0', 400, range],
    ['limit=1001', 400, range],
    ['limit=-1', 400, range],
    ['limit=x', 500, invalid('limit')],
    ['limit=1.5', 500, invalid('limit')],
    ['offset=x', 500, invalid('offset')],
    ['setup=yes', 500, invalid('setup')],
    ['headnode=1', 500, invalid('headnode')],
    ['extras=a-b', 500, invalid('extras')],
    ['hostname=%20x', 500, 'value contains leading or trailing whitespace'],
    ['limit=x&setup=yes', 500, invalid('setup'), invalid('limit')],
  ] as const) {
    const { status: got, body } = await call('GET', `/servers?${query}`);
    t.equal(got, status, query);
    t.equal(body.code, 'InvalidParameters', query);
    t.same(
      body.errors.map(({ message }: { message: string }) => message),
      messages,
      query,
    );
  }
  matchLists(t, await call('GET', '/servers?after=x'), { status: 500, body: { errors: [{ field: 'after' }] } });
  t.match(await call('GET', '/servers?offset=-1'), {
    status: 500,
    body: { code: 'InternalError', message: 'OFFSET must not be negative' },
  });
  t.same(await list('?offset=99999999999999999999'), []);
  t.equal((await call('GET', '/servers?sort=hostname')).status, 409);
});

t.test('concurrent writers of one server all take effect', async (t) => {
  const { call, addServer, servers } = await startApi(t);
  await addServer(SERVER);
  const updates = ['reserved', 'reservoir', 'setting_up'].map((field) =>
    call('POST', `/servers/${SERVER}`, { [field]: true, etag_retries: 50 }),
  );
  const reports = Array.from({ length: 5 }, (_, n) =>
    servers.recordSysinfo(SERVER, { UUID: SERVER, 'MiB of Memory': n + 1 }),
  );
  t.same(
    (await Promise.all(updates)).map(({ status }) => status),
    [204, 204, 204],
  );
  await Promise.all(reports);
  t.match((await call('GET', `/servers/${SERVER}`)).body, { reserved: true, reservoir: true, setting_up: true });
});

t.test('status history is newest first with paging, survives removal, and is 404 when unknown', async (t) => {
  const { call, addServer, roster } = await startApi(t);
  await addServer(SERVER);
  t.same((await call('GET', `/servers/${SERVER}/status-history`)).body, []);
  t.equal((await call('GET', `/servers/${UNKNOWN_UUID}/status-history`)).status, 404);
  roster.changes = [3, 2, 1].map((epoch) => ({
    status: 'running',
    previous: null,
    reason: 'connected',
    message: 'its agent is connected',
    since: new Date(epoch),
    cnapi_uuid: null,
    epoch,
  }));
  t.same(
    (await call('GET', `/servers/${SERVER}/status-history?limit=1&offset=1`)).body.map(
      ({ epoch }: { epoch: number }) => epoch,
    ),
    [2],
  );
  t.equal((await call('GET', `/servers/${UNKNOWN_UUID}/status-history`)).status, 200);
  const wrong = await call('GET', `/servers/${SERVER}/status-history?limit=0`);
  t.equal(wrong.status, 400, "on routes of our own a caller's error is 4xx");
  t.same(wrong.body.errors, [{ field: 'limit', code: 'Invalid', message: 'value is not between 1 and 1000' }]);
});

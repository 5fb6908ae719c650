import t from 'tap';
import { DatabaseUnavailableError } from '../../../../lib/platform/errors.ts';
import { FakeLegacyAgents } from '../../http/stand-ins.ts';
import { SERVER, startApi, UNKNOWN_UUID } from '../../http/support.ts';

t.test('a legacy heartbeat is recorded and not logged', async (t) => {
  const { call, legacyAgents, logged } = await startApi(t);
  logged.length = 0;
  for (const body of [{}, undefined])
    t.match(await call('POST', `/servers/${SERVER.toUpperCase()}/events/heartbeat`, body), { status: 204, text: '' });
  t.same(legacyAgents.heard, [SERVER, SERVER]);
  t.same(logged, []);
});

t.test('a heartbeat for an invalid server uuid is 409', async (t) => {
  const { call, legacyAgents } = await startApi(t);
  const cases: [string, unknown, object][] = [
    ['zzz', {}, { status: 409, body: { code: 'InvalidArgument', message: 'Invalid server_uuid' } }],
    ['default', {}, { status: 409, body: { message: 'Invalid server_uuid' } }],
  ];
  for (const [uuid, body, answer] of cases)
    t.match(
      await call('POST', `/servers/${uuid}/events/heartbeat`, body, { 'content-type': 'application/json' }),
      answer,
    );
  t.same(legacyAgents.heard, []);
});

t.test('the body of a heartbeat is not read', async (t) => {
  const { call, legacyAgents } = await startApi(t);
  for (const body of [{ a: 1 }, '{', `{"a":"${'x'.repeat(1 << 20)}"}`])
    t.match(await call('POST', `/servers/${SERVER}/events/heartbeat`, body), { status: 204, text: '' });
  t.equal(legacyAgents.heard.length, 3);
});

t.test('a status report keeps the known parts and ignores the rest; an unknown server is 404', async (t) => {
  const { call, addServer } = await startApi(t);
  await addServer(SERVER);
  const report = {
    vms: { [UNKNOWN_UUID]: { uuid: UNKNOWN_UUID }, broken: 7 },
    meminfo: 'none',
    diskinfo: null,
    timestamp: 3,
    more: [],
  };
  t.match(await call('POST', `/servers/${SERVER}/events/status`, report), { status: 204, text: '' });
  t.same((await call('GET', `/servers/${SERVER}`)).body.vms, { [UNKNOWN_UUID]: { uuid: UNKNOWN_UUID } });
  t.match(await call('POST', `/servers/${UNKNOWN_UUID}/events/status`, report), {
    status: 404,
    body: { code: 'ResourceNotFound', message: `Server ${UNKNOWN_UUID} not found` },
  });
  t.equal((await call('POST', '/servers/zzz/events/status', {})).status, 409);
});

t.test('a sysinfo that creates the server counts as a heartbeat, a later one does not', async (t) => {
  const { call, legacyAgents } = await startApi(t);
  const sysinfo = { UUID: SERVER };
  for (const status of [200, 200])
    t.equal((await call('POST', `/servers/${SERVER}/sysinfo`, { sysinfo })).status, status);
  t.same(legacyAgents.made, [SERVER]);
});

t.test('a heartbeat that cannot be recorded is 503, and the sysinfo can be posted again', async (t) => {
  const legacyAgents = new FakeLegacyAgents();
  legacyAgents.created = async () => {
    throw new DatabaseUnavailableError();
  };
  const { call } = await startApi(t, { parts: { heartbeats: legacyAgents } });
  const post = () => call('POST', `/servers/${SERVER}/sysinfo`, { sysinfo: { UUID: SERVER } });
  t.equal((await post()).status, 503);
  t.equal((await post()).status, 200);
});

/** Boot parameters at two instances of a zone. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { freshZone, type TestApp } from '../../../support/apps.ts';
import { startWithTokens } from '../../http/with-tokens.ts';

const PLATFORM = '20210101T000000Z';
const OLD_PLATFORM = '20200101T000000Z';
const MODULE = { path: 'etc/one', content: Buffer.from('k=1').toString('base64'), type: 'base64' };
const INITIAL = { platform: '', kernel_flags: {}, boot_modules: [], default_console: 'serial', serial: 'ttyb' };
const noSuch = (name: string) => ({
  status: 500,
  body: { code: 'InternalError', message: `Platform '${name}' does not exist` },
});

async function start(t: Test, config = {}) {
  const zone = await freshZone(t);
  const [one, other] = [await zone.startApp(config), await zone.startApp(config)];
  for (const name of [OLD_PLATFORM, PLATFORM]) await one.post('/boot_platforms', { name });
  return { zone, one, other };
}

async function register(app: TestApp, hostname: string): Promise<string> {
  const uuid = randomUUID();
  const { status } = await app.post(`/servers/${uuid}/sysinfo`, { sysinfo: { UUID: uuid, Hostname: hostname } });
  t.equal(status, 200);
  return uuid;
}

t.test('the defaults can be changed, and new servers copy them', async (t) => {
  const { one, other } = await start(t);
  const first = await register(one, 'first');
  t.strictSame((await one.get('/boot/default')).body, { ...INITIAL, kernel_args: { smt_enabled: true } });

  const change = { platform: PLATFORM, kernel_args: { a: '1', b: '2' }, kernel_flags: { '-k': true }, serial: 'ttya' };
  t.equal((await one.post('/boot/default', { ...change, boot_modules: [MODULE] })).status, 204);
  const changed = { ...INITIAL, ...change, kernel_args: { a: '1', b: '2', smt_enabled: true }, boot_modules: [MODULE] };
  t.strictSame((await other.get('/boot/default')).body, changed);
  const { boot_modules, boot_platform } = (await other.get<Record<string, unknown>>('/servers/default')).body;
  t.strictSame([boot_platform, boot_modules], [PLATFORM, [MODULE]]);
  const second = await register(other, 'second');
  t.strictSame((await one.get(`/boot/${second}`)).body, {
    ...changed,
    kernel_args: { a: '1', b: '2', hostname: 'second' },
  });
  t.strictSame(
    (await one.get(`/boot/${first}`)).body,
    { ...INITIAL, kernel_args: { hostname: 'first' } },
    'not others',
  );

  t.equal((await other.post('/boot/default', { kernel_args: { a: null, smt_enabled: false } })).status, 204);
  t.strictSame(
    (await one.get('/boot/default')).body,
    { ...changed, kernel_args: { b: '2', smt_enabled: false }, boot_modules: [] },
    'modules that are not named are removed',
  );
  t.equal((await one.put('/boot/default', { kernel_args: { c: '3' }, kernel_flags: { '-m': 'x' } })).status, 204);
  const replaced = { ...INITIAL, platform: PLATFORM, kernel_args: { c: '3', smt_enabled: true } };
  t.strictSame((await other.get('/boot/default')).body, replaced, 'without flags, with the latest platform');
  t.match(await one.put('/boot/default', { platform: 'nope' }), noSuch('nope'));
  t.match(await one.post('/boot/default', { platform: 'nope' }), noSuch('nope'));
});

t.test('deleted defaults are the initial ones, and can be set again', async (t) => {
  const { one, other } = await start(t);
  await one.post('/boot/default', { serial: 'ttya' });
  t.equal(await one.delete('/servers/default'), 200);
  t.equal(await one.delete('/servers/default'), 404);
  t.strictSame((await other.get('/boot/default')).body, { ...INITIAL, kernel_args: { smt_enabled: true } });
  t.match((await other.get(`/boot/${await register(one, 'host')}`)).body, { serial: 'ttyb' });
  t.equal((await other.post('/boot/default', { serial: 'ttya' })).status, 204);
  t.match((await one.get('/servers/default')).body, { uuid: 'default', serial: 'ttya' });
});

t.test('the parameters of a server can be changed and replaced', async (t) => {
  const { one, other } = await start(t);
  const at = `/boot/${await register(one, 'web-1')}`;
  const merged = await one.post(at, {
    kernel_args: { a: '1', b: '2' },
    boot_modules: [MODULE],
    boot_platform: OLD_PLATFORM,
  });
  t.equal(merged.status, 204);
  t.equal((await other.post(at, { params: { b: null, c: {} }, kernel_flags: { '-k': true } })).status, 204);
  t.strictSame((await one.get(at)).body, {
    ...INITIAL,
    platform: OLD_PLATFORM,
    kernel_args: { a: '1', c: {}, hostname: 'web-1' },
    kernel_flags: { '-k': true },
    boot_modules: [MODULE],
  });
  const stats = {
    getObjectAttempts: 1,
    getObjectErrors: 0,
    getObjectNotFound: 0,
    putObjectAttempts: 1,
    putObjectErrors: 0,
    putObjectEtagErrors: 0,
  };
  t.strictSame(await other.put(at, { boot_params: { z: '1' }, default_console: 'vga' }), {
    status: 200,
    body: { stats },
  });
  const replaced = {
    ...INITIAL,
    platform: PLATFORM,
    kernel_args: { z: '1', hostname: 'web-1' },
    default_console: 'vga',
  };
  t.strictSame((await one.get(at)).body, replaced, 'everything else is initial, the platform the latest one');
  t.match(await one.put(at, { kernel_args: { z: '1' }, default_console: 'vga' }), {
    body: { stats: { putObjectAttempts: 0 } },
  });

  t.match(await one.post(at, { platform: 'nope' }), noSuch('nope'));
  t.match(await one.put(at, { boot_platform: 'nope' }), noSuch('nope'));
  const wrong = await one.post(at, { boot_modules: [{ ...MODULE, path: '../x' }] });
  t.match(wrong, {
    status: 409,
    body: { code: 'InvalidArgument', message: /Invalid path for boot_module: '\.\.\/x'/ },
  });
  t.match(await one.post(at, { kernel_args: 'x' }), { status: 500, body: { code: 'InvalidParameters' } });
  t.strictSame((await other.get(at)).body, replaced, 'refused requests change nothing');

  for (const answer of [
    await one.get(`/boot/${randomUUID()}`),
    await one.post(`/boot/${randomUUID()}`),
    await one.put(`/boot/${randomUUID()}`),
  ])
    t.match(answer, { status: 404, body: { code: 'ResourceNotFound' } });
  t.match(await one.get('/boot/x'), { status: 409, body: { message: 'Invalid server_uuid' } });
});

t.test('an update of a server takes only a platform that exists', async (t) => {
  const { one, other } = await start(t);
  const server = await register(one, 'web-1');
  t.match(await one.post(`/servers/${server}`, { boot_platform: 'nope' }), {
    status: 500,
    body: { code: 'InternalError', message: 'failed to find given platform image, nope' },
  });
  t.equal((await other.post(`/servers/${server}`, { boot_platform: PLATFORM })).status, 204);
  t.match((await one.get(`/boot/${server}`)).body, { platform: PLATFORM });
  const long = await one.post(`/servers/${server}`, { boot_params: { a: 'x'.repeat(20_000) } });
  t.match(long, { status: 409, body: { code: 'InvalidArgument', message: /^boot_params has/ } });
  t.equal((await one.post(`/servers/${server}`, { boot_platform: '' })).status, 204, 'an empty name is none');
});

t.test('changes at the same time, at both instances, are all kept', async (t) => {
  const { one, other } = await start(t);
  const at = `/boot/${await register(one, 'web-1')}`;
  const names = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
  const answers = await Promise.all(
    names.map((name, index) => (index % 2 === 0 ? one : other).post(at, { kernel_args: { [name]: '1' } })),
  );
  t.strictSame(
    answers.map(({ status }) => status),
    names.map(() => 204),
  );
  const { kernel_args } = (await one.get<{ kernel_args: object }>(at)).body;
  t.strictSame(Object.keys(kernel_args).toSorted(), [...names, 'hostname'].toSorted());
});

t.test('the configuration says which broker and which threads servers boot with', async (t) => {
  const { one } = await start(t, { rabbitmq: 'u:p:10.0.0.20:5672', smtEnabled: false });
  const rabbitmq = 'u:p:10.0.0.20:5672';
  t.match((await one.get('/boot/default')).body, { kernel_args: { rabbitmq, smt_enabled: false } });
  t.match((await one.get(`/boot/${await register(one, 'h')}`)).body, { kernel_args: { rabbitmq, hostname: 'h' } });
});

t.test('a reader sees which arguments and modules there are, and not what they say', async (t) => {
  const { call, as, addServer } = await startWithTokens(t);
  const server = randomUUID();
  const reported = { headnode: 'true', hostname: 'shown', root_shadow: 'hash-of-root' };
  await addServer(server, { sysinfo: { 'Boot Parameters': reported } });
  const [reader, operator] = [await as('reader'), await as('operator')];
  const secrets = {
    kernel_args: { root_shadow: 'hash-of-root' },
    kernel_flags: { '-k': 'hash-of-root' },
    boot_modules: [MODULE],
  };
  for (const at of [`/boot/${server}`, '/boot/default']) {
    t.equal((await call('POST', at, secrets, reader.headers)).status, 403);
    t.equal((await call('POST', at, secrets, operator.headers)).status, 204);
    t.match((await call('GET', at, undefined, operator.headers)).body, secrets);
  }
  for (const at of [`/boot/${server}`, '/boot/default', `/servers/${server}`, '/servers/default', '/servers']) {
    const { status, text } = await call('GET', at, undefined, reader.headers);
    t.equal(status, 200);
    t.match(text, /"root_shadow":"\(secret\)"/, at);
    t.notMatch(text, 'hash-of-root', at);
    t.notMatch(text, MODULE.content, at);
  }
  t.match((await call('GET', '/servers', undefined, operator.headers)).text, 'hash-of-root');
  for (const at of [`/servers/${server}`, '/servers?extras=sysinfo', '/servers?extras=all&fields=sysinfo']) {
    const { text } = await call('GET', at, undefined, reader.headers);
    t.match(text, '"Boot Parameters":{"headnode":"true","hostname":"shown","root_shadow":"(secret)"}', at);
    t.notMatch(text, 'hash-of-root', at);
    const whole = '"Boot Parameters":{"headnode":"true","hostname":"shown","root_shadow":"hash-of-root"}';
    t.match((await call('GET', at, undefined, operator.headers)).text, whole, at);
  }
});

t.test('the audit has each change, without what it says', async (t) => {
  const { one } = await start(t);
  const server = await register(one, 'web-1');
  await one.post(`/boot/${server}`, { kernel_args: { root_shadow: 'hash-of-root' } });
  await one.put('/boot/default', { kernel_args: { root_shadow: 'hash-of-root' } });
  const { body } = await one.get<{ action: string; object: string }[]>('/audit');
  const actions = body.map(({ action }) => action);
  t.ok(actions.includes('ChangeBootParams') && actions.includes('ReplaceBootDefaults'));
  t.notMatch(JSON.stringify(body), 'hash-of-root');
});

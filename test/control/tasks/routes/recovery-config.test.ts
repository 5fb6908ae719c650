import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { readdir, readFile, stat } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import t, { type Test } from 'tap';
import { checkRecoverable, parseRecoveryRequest } from '../../../../lib/control/tasks/routes/recovery-config.ts';
import { deriveRecoveryUuid, templateDigest } from '../../../../lib/protocol/recovery.ts';
import { ownProgram, Program } from '../../../../tools/processes/program.ts';
import { freshZone, type TestApp } from '../../../support/apps.ts';
import { until } from '../../../support/until.ts';
import { startWithTokens } from '../../http/with-tokens.ts';

const TEMPLATE = 'secret-template';
const DIGEST = templateDigest(TEMPLATE);
const UUID = deriveRecoveryUuid(DIGEST);
const activation = { action: 'activate', recovery_uuid: UUID, pivtoken: 'secret-pivtoken' };
const stage = { ...activation, action: 'stage', template: TEMPLATE, token: 'secret-token' };

t.test('the parameters, in the order of their checks', async (t) => {
  const rows: [string, object, RegExp][] = [
    ['no uuid', { ...stage, recovery_uuid: undefined, pivtoken: undefined }, /^recovery_uuid is missing$/],
    ['no pivtoken', { ...stage, pivtoken: '', action: undefined }, /^pivtoken is missing$/],
    ['no action', { ...stage, action: undefined }, /^action is missing$/],
    ['a uuid that is none', { ...stage, recovery_uuid: 'x' }, /^recovery_uuid is not a UUID$/],
    ['another action', { ...stage, action: 'secret-action' }, /^action is neither 'stage' nor 'activate'$/],
    ['no template', { ...stage, template: undefined, token: undefined }, /^template is missing$/],
    ['no token', { ...stage, token: undefined }, /^token is missing$/],
    ['no text', { ...stage, token: { secret: 1 } }, /^token is not a string$/],
    ['a long template', { ...stage, template: 'x'.repeat(65_537) }, /^template is longer than 65536 characters$/],
  ];
  for (const [name, params, message] of rows)
    t.throws(
      () => parseRecoveryRequest(params as Record<string, unknown>),
      { code: 'PreconditionFailed', statusCode: 412, message },
      name,
    );
  t.strictSame(parseRecoveryRequest({ ...stage, recovery_uuid: UUID.toUpperCase(), other: 1 }), {
    ...stage,
    secret_params: ['/pivtoken', '/template', '/token'],
  });
  t.strictSame(parseRecoveryRequest({ ...stage, action: 'activate' }), { ...activation, secret_params: ['/pivtoken'] });
});

t.test('the server, in the order of the checks', async (t) => {
  const agents = (version?: string) => (version === undefined ? [] : [{ name: 'x' }, { name: 'cn-agent', version }]);
  const zpool = (recovery?: object) => ({ 'Zpool Encrypted': true, ...(recovery && { 'Zpool Recovery': recovery }) });
  const staged = zpool({ staged: DIGEST });
  const rows: [string, 'stage' | 'activate', string | undefined, object, RegExp | undefined][] = [
    ['no agent of Triton', 'stage', undefined, {}, /older than 2\.13\.0$/],
    ['an old agent', 'stage', '2.12.9', {}, /older than 2\.13\.0$/],
    ['a version that is none', 'stage', 'x', {}, /older than 2\.13\.0$/],
    ['no encrypted zpool', 'stage', '2.13.0', {}, /^The zpool of the server is not encrypted$/],
    ['the zpool says no', 'stage', '2.13.0', { 'Zpool Encrypted': 'false' }, /not encrypted$/],
    ['active already', 'stage', '2.13.0', zpool({ active: DIGEST }), /is active already$/],
    ['activated already', 'activate', '2.13.0', zpool({ active: DIGEST }), /is active already$/],
    ['nothing is staged', 'activate', '2.13.0', zpool(), /is not staged$/],
    ['another is staged', 'activate', '2.13.0', zpool({ staged: templateDigest('x') }), /is not staged$/],
    ['no digest', 'activate', '2.13.0', zpool({ staged: '' }), /is not staged$/],
    ['to stage the first', 'stage', '2.13.0', zpool(), undefined],
    ['to stage again', 'stage', '2.14.1-x', staged, undefined],
    ['to activate', 'activate', '3.0.0', staged, undefined],
    ['to activate, in capitals', 'activate', '10.0.0', zpool({ staged: DIGEST.toUpperCase() }), undefined],
  ];
  for (const [name, action, version, sysinfo, message] of rows) {
    const check = () =>
      checkRecoverable({ action, recovery_uuid: UUID }, { agents: agents(version), sysinfo: { ...sysinfo } });
    if (message === undefined) t.doesNotThrow(check, name);
    else t.throws(check, { code: 'PreconditionFailed', message }, name);
  }
});

async function startAgent(t: Test, { url, get }: TestApp, ...options: string[]) {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'cnapi-recovery-'));
  const [data, uuid, logFile] = [path.join(folder, 'data'), randomUUID(), path.join(folder, 'agent.log')];
  const args = ['--url', url, '--data', data, '--uuid', uuid, ...options];
  const agent = new Program({ name: 'agent', command: ownProgram('lib/agent/main.ts', args), logFile });
  t.teardown(async () => {
    await agent.kill();
    rmSync(folder, { recursive: true, force: true });
  });
  agent.start();
  await until(async () => (await get<{ status?: string }>(`/servers/${uuid}`)).body.status === 'running', 'a session');
  return { at: `/servers/${uuid}`, data, logFile };
}

t.test('a configuration is staged and activated on a server, and nobody sees its secrets', async (t) => {
  const zone = await freshZone(t);
  const [one, other] = [await zone.startApp(), await zone.startApp()];
  const { at, data, logFile } = await startAgent(t, one, '--encrypted-zpool');
  const recovery = async () =>
    (await other.get<{ sysinfo: Record<string, object> }>(at)).body.sysinfo['Zpool Recovery'];
  const set = async (params: object) => {
    const answer = await other.post<{ id: string; message: string }>(`${at}/recovery-config`, params);
    const { id } = answer.body;
    if (answer.status === 200) t.match((await one.get(`/tasks/${id}/wait?timeout=60`)).body, { status: 'complete' });
    return answer;
  };
  const digests = (expected: object) =>
    until(
      async () => JSON.stringify(await recovery()) === JSON.stringify(expected),
      `the sysinfo to have ${Object.keys(expected)}`,
    );
  await digests({});
  t.match(await set(activation), { status: 412, body: { code: 'PreconditionFailed', message: /is not staged$/ } });
  t.equal((await set(stage)).status, 200);
  await digests({ staged: DIGEST });
  t.equal((await set(activation)).status, 200);
  await digests({ active: DIGEST });
  t.match(await set(stage), { status: 412, body: { message: /is active already$/ } });

  const file = path.join(data, 'recovery', 'active.json');
  t.match(JSON.parse(await readFile(file, 'utf8')), { config: { template: TEMPLATE, token: 'secret-token' } });
  t.equal((await stat(file)).mode & 0o777, 0o600);
  const seen = await Promise.all(
    ['/audit', `${at}/task-history`, '/tasks', at].map(async (route) => JSON.stringify(await other.get(route))),
  );
  t.notMatch(seen.join(), /secret-/);
  t.match(seen[1], /\(secret\)/);
  t.notMatch(await readFile(logFile, 'utf8'), /secret-/);
  const rows = await zone.database.query<{ text: string }>('select t::text as text from cnapi_tasks t', []);
  t.notMatch(JSON.stringify(rows.rows), /secret-/, 'the values are deleted with the end of the task');
  for (const name of await readdir(data))
    if (name.includes('journal')) t.notMatch(await readFile(path.join(data, name), 'utf8'), /secret-/, name);
});

t.test('a server without an encrypted zpool, and one that does not run, take none', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const { at } = await startAgent(t, app);
  const refusal = {
    status: 412,
    body: { code: 'PreconditionFailed', message: 'The zpool of the server is not encrypted' },
  };
  await until(async () => (await app.get<{ agents: object[] }>(at)).body.agents.length > 0, 'its sysinfo');
  t.match(await app.post(`${at}/recovery-config`, stage), refusal);
  const missing = await app.post(`/servers/${randomUUID()}/recovery-config`, stage);
  t.match(missing, { status: 404, body: { code: 'ResourceNotFound' } });
  const task = await app.post(`${at}/tasks`, { task: 'recovery_config', params: stage });
  t.match(task, { status: 400, body: { code: 'InvalidParameters' } }, 'whose params would be shown');
});

t.test('a refusal has no secret in its answer or the log, and a reader may not ask', async (t) => {
  const { call, as, addServer, logged } = await startWithTokens(t);
  const server = randomUUID();
  await addServer(server);
  const at = `/servers/${server}/recovery-config`;
  const refused = await call('POST', at, stage, (await as('operator')).headers);
  t.equal(refused.status, 412);
  t.notMatch(refused.text, /secret-/);
  t.notMatch(JSON.stringify(logged), /secret-/);
  t.equal((await call('POST', at, stage, (await as('reader')).headers)).status, 403);
});

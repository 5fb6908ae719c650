import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { type CredentialOptions, openCredentials } from '../../../lib/agent/link/credentials.ts';
import { dialWebSocket } from '../../../lib/agent/link/link-socket.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { Authority } from '../../support/certificates.ts';
import { FakeLegacyCnapi } from '../../support/fake-legacy-cnapi.ts';
import { matchLists } from '../../support/match-lists.ts';
import { recordingLogger } from '../../support/recording-logger.ts';
import type { Script, ScriptedInstance } from '../../support/scripted-instance.ts';
import { until } from '../../support/until.ts';
import { agent, instance, nop } from '../agent-rig.ts';

const TOKEN = `cnapi_${'0a'.repeat(16)}_${'Aa-_9'.repeat(8)}xyz`;
const OTHER_TOKEN = `cnapi_${'1b'.repeat(16)}_${'Bb-_8'.repeat(8)}xyz`;

async function folder(t: Test): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'credentials-'));
  t.teardown(() => rm(path, { recursive: true, force: true }));
  return path;
}

async function tokenFile(t: Test, token = TOKEN): Promise<string> {
  const path = join(await folder(t), 'token');
  await writeFile(path, `${token}\n`, { mode: 0o600 });
  return path;
}

async function secured(t: Test, names: string, script: Script = {}) {
  const authority = await Authority.create(t);
  const { certFile, keyFile } = await authority.issue({ names });
  const tls = { cert: await readFile(certFile), key: await readFile(keyFile) };
  return { authority, tls, one: await instance(t, { ...script, tls }) };
}

async function agentWith(t: Test, known: ScriptedInstance[], options: CredentialOptions) {
  const logged: Record<string, unknown>[] = [];
  const log = recordingLogger(logged);
  const credentials = openCredentials(options, log);
  const made = await agent(t, known, { log, credentials, dial: dialWebSocket(clock, credentials) });
  const warnings = () => logged.filter(({ level }) => level === 'warn').map(({ msg, reason }) => `${msg} <${reason}>`);
  return { ...made, logged, warnings };
}

t.test('over TLS with a token, an agent runs tasks and reconnects', async (t) => {
  const { authority, one } = await secured(t, 'IP:127.0.0.1');
  const file = await tokenFile(t);
  const made = await agentWith(t, [one], { tls: true, caFile: authority.caFile, tokenFile: file });
  const session = await one.session(0);
  const task = nop((await session.received('inventory')).epoch);
  session.task(task);
  t.match(await session.end(task.id), { outcome: 'complete' });
  t.same(one.authorizations, [`Bearer ${TOKEN}`]);
  t.same(made.warnings(), []);
  session.cut();
  await one.session(1);
  t.equal(one.authorizations.length, 2, 'an address from a welcome gets the same token');
});

t.test('a certificate of an unknown CA is refused, with one warning, until the CA is configured', async (t) => {
  const { authority, one } = await secured(t, 'IP:127.0.0.1');
  const other = await Authority.create(t);
  const caFile = join(await folder(t), 'ca.pem');
  await writeFile(caFile, await readFile(other.caFile));
  const made = await agentWith(t, [one], { tls: true, caFile });
  await until(() => made.agent.link.state.failedRounds >= 3, 'three failed rounds');
  t.equal(one.upgrades, 0);
  const told = made.warnings().filter((line) => /--ca FILE names the CA to trust/.test(line));
  t.equal(told.length, 1);
  t.match(told[0], /unable to verify|certificate/);
  t.notMatch(told[0], /[^\x20-\x7e]/, 'the warning is in ASCII, so that it can be searched for');
  t.notOk(made.agent.isLegacyCnapi);
  await writeFile(caFile, await readFile(authority.caFile));
  await one.session(0);
});

t.test('a certificate for another name is refused; --tls-name sets the expected name', async (t) => {
  const { authority, one } = await secured(t, 'DNS:cnapi.east.example');
  const { caFile } = authority;
  const wrong = await agentWith(t, [one], { tls: true, caFile });
  await until(
    () => wrong.warnings().some((line) => /127\.0\.0\.1 is not in the cert's list/.test(line)),
    'the warning',
  );
  t.ok(wrong.warnings().some((line) => /--tls-name NAME the name that it must contain/.test(line)));
  t.equal(one.upgrades, 0);
  await agentWith(t, [one], { tls: true, caFile, tlsName: 'cnapi.east.example' });
  await one.session(0);
  t.equal(one.upgrades, 1);
});

t.test('an agent with TLS does not connect to an instance without TLS', async (t) => {
  const one = await instance(t);
  const { caFile } = await Authority.create(t);
  const made = await agentWith(t, [one], { tls: true, caFile, tokenFile: await tokenFile(t) });
  await until(() => made.warnings().some((line) => /does not speak TLS/.test(line)), 'the warning');
  t.equal(one.upgrades, 0);
});

const REFUSALS = [
  [401, /its token is missing, wrong, expired or revoked/],
  [403, /does not accept this agent's token/],
  [429, /asks this agent to wait/],
] as const;

t.test('401, 403 and 429 are logged once, cause no fallback, and a new token is used immediately', async (t) => {
  const each = REFUSALS.map(async ([status, advice]) => {
    const one = await instance(t, { upgradeStatus: status });
    const file = await tokenFile(t);
    const made = await agentWith(t, [one], { tls: false, tokenFile: file });
    await until(() => one.upgrades >= 3, 'three attempts');
    t.equal(made.warnings().filter((line) => advice.test(line)).length, 1, `${status}`);
    t.notMatch(made.warnings().join(), /[^\x20-\x7e]/, 'the warning is in ASCII, so that it can be searched for');
    t.notOk(made.agent.isLegacyCnapi);
    await writeFile(file, OTHER_TOKEN);
    await until(() => one.authorizations.includes(`Bearer ${OTHER_TOKEN}`), 'the new token');
    delete one.script.upgradeStatus;
    await one.session(0);
    t.notMatch(JSON.stringify(made.logged), /Aa-_9|Bb-_8/, 'no token in the log');
  });
  await Promise.all(each);
});

t.test('an agent does not retry before the Retry-After of an instance', async (t) => {
  const one = await instance(t, { upgradeStatus: 429, upgradeHeaders: 'Retry-After: 2\r\nContent-Length: 0' });
  const beganAt = clock.now();
  await agentWith(t, [one], { tls: false, tokenFile: await tokenFile(t) });
  await until(() => one.upgrades === 2, 'the second attempt');
  t.ok(clock.now() - beganAt >= 2000);
});

t.test('the legacy protocol uses the token and TLS, and obeys Retry-After', async (t) => {
  const authority = await Authority.create(t);
  const { certFile, keyFile } = await authority.issue();
  const tls = { cert: await readFile(certFile), key: await readFile(keyFile) };
  const refuse = { path: /./, status: 401, retryAfter: '1' };
  const cnapi = await FakeLegacyCnapi.start({ tls, refuse });
  t.teardown(() => cnapi.stop());
  const options = { tls: true, caFile: authority.caFile, tokenFile: await tokenFile(t) };
  const logged: Record<string, unknown>[] = [];
  const log = recordingLogger(logged);
  const credentials = openCredentials(options, log);
  const resolve = async () => [cnapi.address];
  await agent(t, [], { log, credentials, resolve, dial: dialWebSocket(clock, credentials), protocol: 'legacy' });
  await until(
    () => logged.some(({ reason }) => /HTTP 401: the instance refuses this agent/.test(String(reason))),
    'the warning about the token',
  );
  await until(
    () => logged.some(({ reason }) => /asked the agent to retry later/.test(String(reason))),
    'the warning about Retry-After',
  );
  delete cnapi.script.refuse;
  await until(() => cnapi.all('/events/heartbeat').length > 0, 'a heartbeat');
  t.ok(cnapi.asked.every(({ authorization }) => authorization === `Bearer ${TOKEN}`));
});

t.test('an unusable credential file fails the start and names the option; a default one may be absent', async (t) => {
  const [place, good] = [await folder(t), await tokenFile(t)];
  const open = (options: Partial<CredentialOptions>) => () => openCredentials({ tls: true, ...options }, silentLogger);
  t.throws(open({ tokenFile: join(place, 'none') }), { message: /^--token-file .*none cannot be used: ENOENT/ });
  t.throws(open({ caFile: join(place, 'none') }), { message: /^--ca .*none cannot be used: ENOENT/ });
  t.throws(open({ caFile: good }), { message: /^--ca .* cannot be used/ });
  await chmod(good, 0o640);
  t.throws(open({ tokenFile: good }), { message: /others may read it \(mode 640\); chmod 600 it$/ });
  await chmod(good, 0o600);
  for (const text of ['', 'two words', 'x'.repeat(5000)]) {
    await writeFile(good, text);
    t.throws(open({ tokenFile: good }), {
      message: /--token-file .* cannot be used: it (does not hold one token|is larger)/,
    });
  }
  const usualTokenFile = join(place, 'token');
  const logged: Record<string, unknown>[] = [];
  const credentials = openCredentials({ tls: false, usualTokenFile }, recordingLogger(logged));
  const headers = () => credentials.credentialsTo({ host: '127.0.0.1', port: 1 }).headers;
  t.same(headers(), {});
  t.same(logged, [], 'an absent default file is not logged');
  await writeFile(usualTokenFile, TOKEN, { mode: 0o600 });
  t.same(headers(), { Authorization: `Bearer ${TOKEN}` });
  await chmod(usualTokenFile, 0o644);
  t.same(headers(), { Authorization: `Bearer ${TOKEN}` }, 'the previous token stays in use');
  matchLists(t, logged, [{ level: 'warn', reason: /others may read it/ }]);
  await rm(usualTokenFile);
  t.same(headers(), { Authorization: `Bearer ${TOKEN}` });
  t.equal(credentials.credentialsTo({ host: '10.1.2.3', port: 1 }).headers.Authorization, `Bearer ${TOKEN}`);
  t.match(logged.at(-1), { level: 'warn', msg: /sent over the network unencrypted/ });
});

t.test('the certificate must be for the name that was looked up', async (t) => {
  const namesFor = (options: Partial<CredentialOptions>, endpoint = {}) =>
    openCredentials({ tls: true, ...options }, silentLogger).credentialsTo({ host: '10.0.0.1', port: 1, ...endpoint })
      .tls;
  t.same(namesFor({}, { name: 'cnapi.example' })?.names, ['cnapi.example']);
  t.same(namesFor({})?.names, ['10.0.0.1']);
  t.same(namesFor({ tlsName: 'a.example' }, { name: 'b.example' })?.names, ['a.example']);
});

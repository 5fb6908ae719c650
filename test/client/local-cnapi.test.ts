import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t, { type Test } from 'tap';
import { createContext, parseDiscovery } from '../../lib/cli/invocation/context.ts';
import { parseAddress } from '../../lib/client/address.ts';
import { readCredentials, tokenFor } from '../../lib/client/credentials.ts';
import { announceLocal, localTokenFile, withdrawLocal } from '../../lib/client/local-cnapi.ts';

const pid = process.pid;
const at = (url: string) => parseAddress(url);

function folder(t: Test): string {
  const made = mkdtempSync(path.join(tmpdir(), 'cnapi-local-'));
  t.teardown(() => rmSync(made, { recursive: true }));
  return made;
}

t.test('a local token file applies to the announced addresses until it is withdrawn', async (t) => {
  const config = folder(t);
  t.equal(localTokenFile(config, at('http://127.0.0.1:8080')), undefined);
  announceLocal(config, '/data/one', { pid, urls: ['http://127.0.0.1:8080'], tokenFile: '/one' });
  announceLocal(config, '/data/two', { pid, urls: ['http://127.0.0.1:9000'], tokenFile: '/two' });
  t.equal(localTokenFile(config, at('http://127.0.0.1:8080')), '/one');
  t.equal(localTokenFile(config, at('http://127.0.0.1:9000')), '/two');
  announceLocal(config, '/data/one', {
    pid,
    urls: ['http://127.0.0.1:8080', 'http://127.0.0.1:8084'],
    tokenFile: '/one',
  });
  t.equal(localTokenFile(config, at('http://127.0.0.1:8084')), '/one', 'an address that was added later');
  for (const other of ['http://127.0.0.1:8085', 'https://127.0.0.1:8080', 'http://10.0.0.1:8080', 'http://[::1]:8080'])
    t.equal(localTokenFile(config, at(other)), undefined, other);
  withdrawLocal(config, '/data/one');
  withdrawLocal(config, '/data/one');
  t.equal(localTokenFile(config, at('http://127.0.0.1:8080')), undefined);
  t.equal(readdirSync(path.join(config, 'local')).length, 1);
});

t.test('without an address, the cnapi that runs locally is used, whatever its ports', async (t) => {
  const home = folder(t);
  const env = { XDG_CONFIG_HOME: home };
  const config = path.join(home, 'cnapi');
  const usual = { urls: ['http://127.0.0.1:8080'] };
  t.same(parseDiscovery({}, env), usual, 'none runs');
  const nine = ['http://127.0.0.1:9000', 'http://127.0.0.1:9001'];
  announceLocal(config, '/data/one', { pid, urls: nine });
  t.same(parseDiscovery({}, env), { urls: nine });
  t.same(parseDiscovery({ url: ['http://10.0.0.1'] }, env), { urls: ['http://10.0.0.1'] });
  t.same(parseDiscovery({}, { ...env, CNAPI_URL: 'http://10.0.0.1' }), { urls: ['http://10.0.0.1'] });
  announceLocal(config, '/data/two', { pid, urls: ['http://127.0.0.1:9100'], tokenFile: '/two' });
  const several = /Several .* --url URL or CNAPI_URL: http:..127.0.0.1:\d+ \(its data: .data.\w+\) or http/;
  t.throws(() => parseDiscovery({}, env), { message: several });
  const context = createContext({}, { env, rest: undefined, streams: process });
  t.throws(() => context.client, { message: several }, 'only for a command that makes a call');
  announceLocal(config, '/data/two', { pid, urls: ['http://127.0.0.1:8080'], tokenFile: '/two' });
  t.throws(() => parseDiscovery({}, env), { message: several }, 'the default address is not preferred');
  t.same(parseDiscovery({}, { ...env, CNAPI_URL: nine[0] }), { urls: [nine[0]] });
});

t.test('a running caller no longer finds a local cnapi that was withdrawn or killed', async (t) => {
  const config = folder(t);
  const urls = ['http://127.0.0.1:8080'];
  const asked = () => localTokenFile(config, at('http://127.0.0.1:8080'));
  announceLocal(config, '/data', { pid, urls, tokenFile: '/one' });
  t.equal(asked(), '/one');
  withdrawLocal(config, '/data');
  t.equal(asked(), undefined, 'withdrawn');
  const supervisor = spawn(process.execPath, ['-e', 'process.stdin.resume()'], { stdio: ['pipe', 'ignore', 'ignore'] });
  t.teardown(() => supervisor.kill('SIGKILL'));
  await once(supervisor, 'spawn');
  announceLocal(config, '/data', { pid: supervisor.pid ?? 0, urls, tokenFile: '/two' });
  t.equal(asked(), '/two');
  supervisor.kill('SIGKILL');
  await once(supervisor, 'exit');
  t.equal(asked(), undefined, 'killed, with its file left behind');
  announceLocal(config, '/data', { pid, urls, tokenFile: '/three' });
  t.equal(asked(), '/three', 'started again');
});

t.test('another process with the pid of an ended one is not taken for it', async (t) => {
  const config = folder(t);
  announceLocal(config, '/data', { pid, urls: ['http://127.0.0.1:8080'], tokenFile: '/one' });
  const file = path.join(config, 'local', readdirSync(path.join(config, 'local'))[0] ?? '');
  const announced = JSON.parse(readFileSync(file, 'utf8'));
  const asked = () => localTokenFile(config, at('http://127.0.0.1:8080'));
  const [boot, startTime] = announced.process.split(' ');
  const others: [string, string | undefined][] = [
    ['another start time', `${boot} ${Number(startTime) - 1}`],
    ['another boot', `${randomUUID()} ${startTime}`],
    ['no process identity', undefined],
  ];
  for (const [name, other] of others) {
    writeFileSync(file, JSON.stringify({ ...announced, process: other }));
    t.equal(asked(), undefined, name);
  }
  writeFileSync(file, JSON.stringify(announced));
  t.equal(asked(), '/one');
});

t.test('an address that is not loopback gets no local token', async (t) => {
  const config = folder(t);
  announceLocal(config, '/data', { pid, urls: ['http://10.0.0.1:8080', 'https://127.0.0.1:8443'], tokenFile: '/one' });
  for (const url of ['http://10.0.0.1:8080', 'https://127.0.0.1:8443'])
    t.equal(localTokenFile(config, at(url)), undefined, url);
});

t.test('a file that is stale, writable by others or malformed is ignored', async (t) => {
  const config = folder(t);
  const urls = ['http://127.0.0.1:8080'];
  const asked = () => localTokenFile(config, at('http://127.0.0.1:8080'));
  // Linux gives no process a pid this high.
  announceLocal(config, '/data', { pid: 2 ** 30, urls, tokenFile: '/one' });
  t.equal(asked(), undefined, 'a dead process');
  announceLocal(config, '/data', { pid, urls, tokenFile: '/one' });
  t.equal(asked(), '/one');
  const file = path.join(config, 'local', readdirSync(path.join(config, 'local'))[0] ?? '');
  chmodSync(file, 0o622);
  t.equal(asked(), undefined, 'writable by others');
  chmodSync(file, 0o600);
  for (const text of ['', '{', '{"pid":1}', JSON.stringify({ pid, urls: 'x', token_file: '/one' })]) {
    writeFileSync(file, text);
    t.equal(asked(), undefined, text);
  }
});

t.test('an explicit token precedes the local one, which precedes the one in the home directory', async (t) => {
  const home = folder(t);
  const config = path.join(home, '.config/cnapi');
  mkdirSync(config, { recursive: true });
  const local = path.join(home, 'local.token');
  writeFileSync(local, 'cnapi_local\n', { mode: 0o600 });
  writeFileSync(path.join(config, 'token'), 'cnapi_usual', { mode: 0o600 });
  announceLocal(config, '/data', { pid, urls: ['http://127.0.0.1:8080'], tokenFile: local });
  const here = at('http://127.0.0.1:8080');
  t.equal(await tokenFor(await readCredentials({ HOME: home }), here), 'cnapi_local');
  t.equal(await tokenFor(await readCredentials({ HOME: home }), at('https://cnapi.example')), 'cnapi_usual');
  t.equal(await tokenFor(await readCredentials({ HOME: home, CNAPI_TOKEN: 'cnapi_named' }), here), 'cnapi_named');
  t.equal(
    await tokenFor(await readCredentials({ HOME: home, CNAPI_TOKEN_FILE: local }), at('http://h')),
    'cnapi_local',
  );
  chmodSync(local, 0o644);
  await t.rejects(tokenFor(await readCredentials({ HOME: home }), here), /mode 0644: others may use it/);
});

import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t from 'tap';
import { addressText, parseAddress } from '../../lib/client/address.ts';
import { readCredentials } from '../../lib/client/credentials.ts';

const TOKEN = 'cnapi_0123456789abcdef0123456789abcdef_secret-secret-secret-secret-secret-secret-12';

t.test('the token comes from the environment, the named file, or the file in the home directory', async (t) => {
  const home = mkdtempSync(path.join(tmpdir(), 'cnapi-client-'));
  t.teardown(() => rmSync(home, { recursive: true }));
  const named = path.join(home, 'named');
  writeFileSync(named, `${TOKEN}\n`, { mode: 0o600 });
  t.equal((await readCredentials({ HOME: home })).token, undefined);
  t.equal((await readCredentials({ HOME: home, CNAPI_TOKEN: 'cnapi_a', CNAPI_TOKEN_FILE: named })).token, 'cnapi_a');
  t.equal((await readCredentials({ HOME: home, CNAPI_TOKEN_FILE: named })).token, TOKEN);
  mkdirSync(path.join(home, '.config/cnapi'), { recursive: true });
  writeFileSync(path.join(home, '.config/cnapi/token'), TOKEN, { mode: 0o600 });
  t.equal((await readCredentials({ HOME: home })).token, TOKEN);

  for (const mode of [0o640, 0o604, 0o660, 0o610]) {
    chmodSync(named, mode);
    const error = await readCredentials({ HOME: home, CNAPI_TOKEN_FILE: named }).catch((thrown: Error) => thrown);
    t.match(error, { message: /others may use it; run chmod 600/ }, mode.toString(8));
    t.notMatch(String(error), 'secret');
  }
  chmodSync(named, 0o600);
  writeFileSync(named, `${TOKEN}\nsecond line`);
  const error = await readCredentials({ HOME: home, CNAPI_TOKEN_FILE: named }).catch((thrown: Error) => thrown);
  t.match(error, { message: /does not hold a token/ });
  t.notMatch(String(error), 'secret');
  await t.rejects(readCredentials({ HOME: home, CNAPI_TOKEN_FILE: path.join(home, 'none') }), /cannot be read/);
  await t.rejects(
    readCredentials({ HOME: home, CNAPI_TOKEN: 'x', CNAPI_CA_FILE: named }),
    /does not hold certificates/,
  );
});

t.test('an address has a scheme, a host and a port', (t) => {
  t.match(parseAddress('http://10.0.0.1:8080'), { secure: false, host: '10.0.0.1', port: 8080 });
  t.match(parseAddress('https://cnapi.example'), { secure: true, host: 'cnapi.example', port: 443 });
  t.equal(addressText(parseAddress('http://[::1]:8080')), 'http://[::1]:8080');
  t.equal(addressText({ ...parseAddress('https://cnapi:1'), host: '10.0.0.1' }), 'https://cnapi:1 (10.0.0.1)');
  for (const bad of ['cnapi:8080', 'ftp://cnapi', 'http://cnapi/path', 'http://user:hush@cnapi:1', ''])
    t.throws(() => parseAddress(bad), /is not an address such as/, bad);
  const long = `http://user:hush${'x'.repeat(300)}@cnapi:1`;
  for (const secret of ['http://user:hush@cnapi:1', 'user:hush@cnapi:1', 'http://user:hu/hush@cnapi:1', long])
    t.throws(() => parseAddress(secret), { message: /^(?!.*hush)/ }, secret);
  t.end();
});

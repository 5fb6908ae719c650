import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t from 'tap';
import { localConfigFile } from '../../../lib/cli/invocation/local-config.ts';
import { announceLocal } from '../../../lib/client/local-cnapi.ts';

t.test('the configuration is that of the npm start which a call would ask, wherever its data is', async (t) => {
  const home = mkdtempSync(path.join(tmpdir(), 'cnapi-local-config-'));
  t.teardown(() => rmSync(home, { recursive: true }));
  const env = { XDG_CONFIG_HOME: home };
  const announce = (data: string, port: number) =>
    announceLocal(path.join(home, 'cnapi'), data, {
      pid: process.pid,
      urls: [`http://127.0.0.1:${port}`, `http://127.0.0.1:${port + 1}`],
    });
  t.equal(localConfigFile({}, env), undefined, 'none runs');
  announce('/data/one', 9000);
  t.equal(localConfigFile({}, env), '/data/one/config/instance-9000.json');
  t.equal(localConfigFile({ url: ['http://10.0.0.1:9000'] }, env), undefined, 'another machine is meant');
  t.equal(localConfigFile({}, { ...env, CNAPI_DNS: '10.0.0.2:53' }), undefined, 'other instances are meant');
  announce('/data/two', 9100);
  t.throws(() => localConfigFile({}, env), { message: /Several cnapis run .*--url URL/ });
  const second = '/data/two/config/instance-9100.json';
  t.equal(localConfigFile({ url: ['http://127.0.0.1:9101'] }, env), second, 'named by any of its addresses');
  t.equal(localConfigFile({ url: ['http://localhost:9101/'] }, env), second, 'however its address is written');
  t.equal(localConfigFile({ url: ['https://localhost:9101'] }, env), undefined, 'npm start has no TLS');
  t.equal(localConfigFile({}, { ...env, CNAPI_URL: 'http://127.0.0.1:9100,http://127.0.0.1:9101' }), second);
});

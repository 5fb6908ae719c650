import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { freshZone } from '../../support/apps.ts';
import { matchLists } from '../../support/match-lists.ts';

const run = promisify(execFile);
const program = path.resolve(import.meta.dirname, '../../../tools/cnapi');

t.test('the first token can be made with an instance’s configuration and is accepted', async (t) => {
  const { startApp, url } = await freshZone(t);
  const folder = mkdtempSync(path.join(tmpdir(), 'cnapi-token-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const config = path.join(folder, 'config.json');
  const file = path.join(folder, 'token');
  writeFileSync(config, JSON.stringify({ databaseUrl: url, access: 'tokens' }));
  const create = (name: string, ...rest: string[]) =>
    run(program, ['token', 'create', name, '--role', 'admin', '--config', config, ...rest]);
  const { stdout } = await create('admin', '--file', file);
  t.equal(stdout, `${file}\n`);
  t.equal(statSync(file).mode & 0o777, 0o600);
  const { url: at } = await startApp({ access: 'tokens' });
  const ask = (token: string) => fetch(`${at}/audit`, { headers: { authorization: `Bearer ${token}` } });
  const answer = await ask(readFileSync(file, 'utf8').trim());
  t.equal(answer.status, 200);
  matchLists(t, await answer.json(), [{ actor: 'configuration', action: 'CreateToken', status: 201, source: 'local' }]);
  t.equal((await ask('cnapi_x')).status, 401);
  await t.rejects(create('admin'), { code: 1, stderr: /There is a token named "admin"/, stdout: '' });
});

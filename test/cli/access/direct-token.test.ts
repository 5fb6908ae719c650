/** Tokens that are written straight into the database of a configuration. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { announceLocal } from '../../../lib/client/local-cnapi.ts';
import { freshZone } from '../../support/apps.ts';
import { Cli } from '../rig.ts';

t.test('token create names the configuration and the database, and --local ignores the environment', async (t) => {
  const [own, other] = [await freshZone(t), await freshZone(t)];
  const cli = new Cli(t, ['http://localhost:9000']);
  const data = path.join(cli.home, 'data');
  const file = path.join(data, 'config', 'instance-9000.json');
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, JSON.stringify({ databaseUrl: own.url }));
  announceLocal(path.join(cli.home, '.config/cnapi'), data, { pid: process.pid, urls: ['http://127.0.0.1:9000'] });
  const env = { CNAPI_DATABASE_URL: other.url };
  const create = (name: string, ...from: string[]) =>
    cli.start(['token', 'create', name, '--role', 'admin', ...from], { env }).ended;
  const textOf = (url: string) => `${new URL(url).pathname.slice(1)} at ${new URL(url).host}`;

  t.match(await create('one', '--local'), {
    code: 0,
    stderr: `cnapi: configuration ${file}; database ${textOf(own.url)}\n`,
  });
  t.match(await create('two', '--config', file), {
    code: 0,
    stderr: `configuration ${file}; database ${textOf(other.url)} (from CNAPI_DATABASE_URL)\n`,
  });
  const namesIn = async ({ database }: typeof own) =>
    (await database.query<{ name: string }>('select name from cnapi_tokens')).rows.map(({ name }) => name);
  t.same([await namesIn(own), await namesIn(other)], [['one'], ['two']]);
});

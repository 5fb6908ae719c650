import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import t from 'tap';
import { FormerSchemaError } from '../../../lib/platform/postgres/migrations.ts';
import { findPlace, isReachableBy } from '../../../tools/start/place.ts';
import { environmentForChildren } from '../../../tools/start/programs.ts';
import { explained, Refusal } from '../../../tools/start/refusal.ts';

t.test('a directory is reachable when every directory on its path may be searched', async (t) => {
  const open = mkdtempSync(path.join(os.tmpdir(), 'cnapi-place-'));
  t.teardown(() => rmSync(open, { recursive: true, force: true }));
  chmodSync(open, 0o755);
  const closed = path.join(open, 'closed');
  mkdirSync(path.join(closed, 'inner'), { recursive: true });
  chmodSync(closed, 0o700);
  const own = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  const other = { uid: own.uid + 4711, gid: own.gid + 4711 };
  t.ok(isReachableBy(other, path.join(open, 'not', 'yet', 'there')));
  t.notOk(isReachableBy(other, path.join(closed, 'inner')));
  t.notOk(isReachableBy(undefined, path.join(closed, 'inner')), 'a user that does not exist yet cannot reach it');
  t.ok(isReachableBy(own, path.join(closed, 'inner')));
});

t.test('as root, data that Postgres could not reach goes to a fixed place in /var/lib/cnapi', async (t) => {
  const closed = mkdtempSync(path.join(os.tmpdir(), 'cnapi-place-'));
  t.teardown(() => rmSync(closed, { recursive: true, force: true }));
  const asked = path.join(closed, 'data');
  const place = findPlace(asked);
  if (process.getuid?.() === 0) {
    t.match(place.data, /^\/var\/lib\/cnapi\/[0-9a-f]{12}$/);
    t.equal(place.instead, asked);
  } else t.strictSame(place, { data: asked, instead: undefined });
  t.strictSame(findPlace(asked), place);
});

t.test('a file, and what would be in it, is not a data directory', async (t) => {
  const closed = mkdtempSync(path.join(os.tmpdir(), 'cnapi-place-'));
  t.teardown(() => rmSync(closed, { recursive: true, force: true }));
  const file = path.join(closed, 'file');
  writeFileSync(file, '');
  const message = `${file} is not a directory: choose another place with --data DIR`;
  for (const asked of [file, path.join(file, 'data'), path.join(file, 'of', 'it')])
    t.throws(() => findPlace(asked), { message, exitCode: 1 }, asked);
});

t.test('children get the environment without the variables of single instances', async (t) => {
  const environment = {
    PATH: '/bin',
    CNAPI_PORT: '1',
    CNAPI_DATABASE_URL: 'x',
    CNAPI_LOG_LEVEL: 'debug',
    CNAPI_UUID: 'u',
  };
  t.strictSame(environmentForChildren(environment), { PATH: '/bin', CNAPI_LOG_LEVEL: 'debug' });
});

t.test('a full disk, a forbidden directory and a database of a development version are explained', async (t) => {
  const full = explained(Object.assign(new Error('write /x'), { code: 'ENOSPC' }));
  t.type(full, Refusal);
  t.match((full as Refusal).message, /write \/x: the disk is full.*--data/);
  const former = explained(new FormerSchemaError());
  t.match(former, { message: /^the database has tables .*npm start -- --data FOLDER/, exitCode: 1 });
  const other = new TypeError('a bug');
  t.equal(explained(other), other, 'any other error is unchanged');
});

import { execFileSync } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import t, { type Test } from 'tap';
import { DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import { asDatabaseError, isConnectionLost, writeFailureReason } from '../../../lib/platform/postgres/unavailable.ts';
import { freshZone, type TestApp } from '../../support/apps.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { openDatabase, startTestPostgres, testServerUrl } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';

t.setTimeout(FILE_TIMEOUT_MS);

type Ready = { ready: boolean; reasons?: string[] };

const ready = async (app: TestApp) => (await app.get<Ready>('/ready')).body;

t.test('the error of a write says whether the database accepts writes', async (t) => {
  const cases = [
    { name: 'a full disk', error: { code: '53100' }, reason: /disk of the database is full/ },
    { name: 'a standby', error: { code: '25006' }, reason: /read-only/ },
    { name: 'no transaction ids', error: { code: '54000', routine: 'GetNewTransactionId' }, reason: /vacuum/ },
    { name: 'a row that is too large for its index', error: { code: '54000', routine: '_bt_check_third_page' } },
    { name: 'a page that cannot be written', error: { code: '58030', routine: 'mdwritev' }, reason: /cannot write/ },
    { name: 'a page that cannot be read', error: { code: '58030', routine: 'mdreadv' } },
    { name: 'too many connections', error: { code: '53300' } },
    { name: 'a locked row', error: { code: '55P03' } },
  ];
  for (const { name, error, reason } of cases) {
    const thrown = Object.assign(new Error('as the server says it'), error);
    if (reason === undefined) {
      t.equal(writeFailureReason(thrown), undefined, name);
      continue;
    }
    t.match(writeFailureReason(thrown), reason, name);
    const mapped = asDatabaseError(thrown);
    t.match(mapped, DatabaseUnavailableError, name);
    t.match((mapped as Error).message, reason, `${name}: the caller gets the error`);
    t.match(writeFailureReason(mapped), reason, `${name}: as the pool throws it`);
  }
  const full = Object.assign(new Error('could not extend file'), { code: '53100' });
  t.equal(isConnectionLost(full), false, 'the connection still works');
  t.equal(isConnectionLost(asDatabaseError(full)), false);
});

t.test('an instance is not ready while its database is read-only, and ready again afterwards', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  t.same(await ready(app), { ready: true });
  const admin = openDatabase(await testServerUrl());
  t.teardown(() => admin.stop());
  const name = new URL(zone.url).pathname.slice(1);
  const setReadOnly = async (value: string) => {
    await admin.query(`alter database ${name} set default_transaction_read_only = ${value}`);
    await admin.query('select pg_terminate_backend(pid) from pg_stat_activity where datname = $1', [name]);
  };
  await setReadOnly('on');
  const isTold = async () => (await ready(app)).reasons?.includes('the database is read-only');
  await until(isTold, 'the reason to be named');
  t.equal((await app.get('/ready')).status, 503);
  await setReadOnly('off');
  await until(async () => (await ready(app)).ready, 'it to be ready');
});

const fullDisk = 'with a full disk an instance is not ready although it keeps its lease, and ready again with room';
t.test(fullDisk, { skip: mayMount() ? false : 'only root may mount a file system' }, async (t) => {
  const disk = mountSmallDisk(t);
  const server = await startTestPostgres();
  disk.usedBy(() => server.close());
  const admin = openDatabase(server.url);
  await admin.query(`create tablespace small location '${disk.folder}'`);
  await admin.query('create database zone tablespace small');
  await admin.stop();
  const databaseUrl = Object.assign(new URL(server.url), { pathname: '/zone' }).href;
  const app = await (await freshZone(t)).startApp({ databaseUrl });
  t.same(await ready(app), { ready: true });

  disk.fill();
  // Random, because compressed data would fit into the free space of its table.
  const filler = () => randomBytes(48 * 1024).toString('base64');
  const refused = await until(async () => {
    const uuid = randomUUID();
    const sysinfo = { UUID: uuid, filler: filler() };
    const made = await app.post<{ message: string }>(`/servers/${uuid}/sysinfo`, { sysinfo });
    return made.status === 503 && made;
  }, 'a write to fail');
  t.match(refused.body.message, /disk of the database is full/);
  const answer = await app.get<Ready>('/ready');
  t.equal(answer.status, 503);
  t.same(answer.body.reasons, ['the disk of the database is full'], 'for no other reason: its beats succeed');
  t.match(await (await fetch(`${app.url}/metrics`)).text(), /^cnapi_database_writable 0$/m);
  t.equal((await app.get('/servers')).status, 200, 'reads are answered');

  disk.empty();
  await until(async () => (await ready(app)).ready, 'the instance to be ready');
  t.match(await (await fetch(`${app.url}/metrics`)).text(), /^cnapi_database_writable 1$/m);
});

function mayMount(): boolean {
  if (process.getuid?.() !== 0 || process.platform !== 'linux') return false;
  const tried = mkdtempSync(path.join(os.tmpdir(), 'cnapi-small-disk-'));
  try {
    mount(tried);
    execFileSync('umount', [tried]);
    return true;
  } catch {
    return false;
  } finally {
    rmSync(tried, { recursive: true });
  }
}

function mount(folder: string): void {
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=48m,mode=755', 'tmpfs', folder], { stdio: 'ignore' });
}

/** A file system of a few megabytes. */
function mountSmallDisk(t: Test) {
  const mounted = mkdtempSync(path.join(os.tmpdir(), 'cnapi-small-disk-'));
  mount(mounted);
  let release: () => Promise<void> = async () => undefined;
  t.teardown(async () => {
    await release();
    execFileSync('umount', [mounted]);
    rmSync(mounted, { recursive: true });
  });
  const folder = path.join(mounted, 'tablespace');
  mkdirSync(folder);
  chmodSync(folder, 0o700);
  execFileSync('chown', ['postgres', folder]);
  const filler = path.join(mounted, 'filler');
  return {
    folder,
    usedBy: (end: () => Promise<void>) => {
      release = end;
    },
    fill: () => {
      try {
        for (;;) writeFileSync(filler, Buffer.alloc(64 * 1024), { flag: 'a' });
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      }
    },
    empty: () => rmSync(filler),
  };
}

import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import t from 'tap';
import { lockHolder, tryLock } from '../../../tools/setup/lock.mjs';
import { describeProcess, isAlive } from '../../../tools/setup/processes.mjs';
import { isNewEnough } from '../../../tools/setup/runtime.mjs';

function folder(t: { teardown(work: () => void): void }): string {
  const made = mkdtempSync(path.join(os.tmpdir(), 'cnapi-lock-'));
  t.teardown(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

t.test('of many processes only one at a time holds the lock, even if none releases it', async (t) => {
  const place = folder(t);
  const journal = path.join(place, 'journal');
  const program = `
    import { appendFileSync } from 'node:fs';
    import { takeLock } from ${JSON.stringify(path.resolve(import.meta.dirname, '../../../tools/setup/lock.mjs'))};
    await takeLock(${JSON.stringify(place)}, 'x', () => undefined);
    appendFileSync(${JSON.stringify(journal)}, 'in\\n');
    await new Promise((resolve) => setTimeout(resolve, 30));
    appendFileSync(${JSON.stringify(journal)}, 'out\\n');`;
  const codes = await Promise.all(
    Array.from({ length: 8 }, () => {
      const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: 'inherit' });
      return new Promise((resolve) => child.once('close', resolve));
    }),
  );
  t.strictSame(codes, Array(8).fill(0));
  t.equal(readFileSync(journal, 'utf8'), 'in\nout\n'.repeat(8));
  t.equal(readdirSync(place).filter((name) => name.includes('lock')).length, 1, 'old lock files are removed');
});

t.test('a lock names its live holder, and is free when the holder has ended', async (t) => {
  const place = folder(t);
  t.equal(lockHolder(place, 'x'), undefined);
  t.ok(tryLock(place, 'x').lock);
  t.equal(tryLock(place, 'x').holder?.pid, process.pid);
  t.equal(lockHolder(place, 'x')?.pid, process.pid);
  t.equal(lockHolder(place, 'y'), undefined, 'locks with other names are independent');
});

t.test('a reused pid does not hold a lock', async (t) => {
  const place = folder(t);
  mkdirSync(place, { recursive: true });
  writeFileSync(path.join(place, 'x.lock.7'), JSON.stringify([{ pid: process.pid, start: '1' }]));
  t.ok(tryLock(place, 'x').lock);
  t.strictSame(readdirSync(place), ['x.lock.8']);
});

t.test('a torn lock file blocks nobody', async (t) => {
  const place = folder(t);
  writeFileSync(path.join(place, 'x.lock.1'), '[{"pid":');
  t.ok(tryLock(place, 'x').lock);
});

t.test('a process is identified by its start time, and a zombie is not alive', async (t) => {
  const own = describeProcess(process.pid);
  t.ok(isAlive(own));
  t.notOk(isAlive({ ...own, start: '12' }));
  const child = spawn('true');
  const described = describeProcess(child.pid ?? 0);
  await new Promise((resolve) => child.once('close', resolve));
  t.notOk(isAlive(described));
});

t.test('Node is new enough when it strips types without a flag', async (t) => {
  const table = {
    '18.20.0': false,
    '22.17.9': false,
    '22.18.0': true,
    '23.5.0': false,
    '23.6.0': true,
    '24.0.0': true,
  };
  for (const [version, expected] of Object.entries(table)) t.equal(isNewEnough(version), expected, version);
});

import {
  appendFile,
  type FileHandle,
  mkdir,
  mkdtemp,
  open as openFile,
  readdir,
  readFile,
  rm,
  stat,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { buildInventory } from '../../../lib/agent/journal/journal.ts';
import { JournalFile } from '../../../lib/agent/journal/journal-file.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { matchLists } from '../../support/match-lists.ts';
import { until } from '../../support/until.ts';
import { ended, taskFrame } from '../frames.ts';

async function folder(t: Test): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'journal-'));
  t.teardown(() => rm(path, { recursive: true, force: true }));
  return path;
}

const open = (directory: string) =>
  JournalFile.open({ directory, clock: systemClock, random: systemRandom, log: silentLogger });

/** Opens the journal as the next process would, without closing the first. */
const reopened = open;

t.test('after a crash the journal holds what was appended, under the same id', async (t) => {
  const directory = await folder(t);
  const journal = await open(directory);
  const id = journal.state.journalId;
  await Promise.all([
    journal.append({ record: 'epoch', epoch: 3 }),
    journal.append({ record: 'accepted', task: taskFrame({ id: 'a', params: { text: 'line\u2028separator\n' } }) }),
    journal.append({ record: 'accepted', task: taskFrame({ id: 'b' }) }),
    journal.append({ record: 'ended', end: ended('b') }),
    journal.append({ record: 'acknowledged', id: 'b' }),
  ]);
  const next = await reopened(directory);
  t.equal(next.state.journalId, id);
  t.equal(next.state.epoch, 3);
  t.same(buildInventory(next.state), [{ id: 'a', attempt: 1, state: 'accepted' }]);
  t.match(next.state.tasks.get('a'), { task: { params: { text: 'line\u2028separator\n' } } });
  t.ok(next.state.acknowledged.has('b'));
  await Promise.all([journal.close(), next.close()]);
});

t.test('a line torn at any byte is cut off, and all lines before it stay', async (t) => {
  const directory = await folder(t);
  const path = join(directory, 'journal');
  const journal = await open(directory);
  await journal.append({ record: 'accepted', task: taskFrame({ id: 'a' }) });
  const whole = (await stat(path)).size;
  await journal.append({ record: 'accepted', task: taskFrame({ id: 'b' }) });
  await journal.close();
  const full = await readFile(path);
  for (const size of [full.length - 1, full.length - 20, whole + 9, whole + 1]) {
    await writeFile(path, full);
    await truncate(path, size);
    const next = await open(directory);
    t.equal(next.state.journalId, journal.state.journalId);
    t.same([...next.state.tasks.keys()], ['a'], `torn at byte ${size} of ${full.length}`);
    await next.close();
  }
});

t.test('trailing zeros, as a file system leaves after a power cut, are cut off like a torn line', async (t) => {
  const directory = await folder(t);
  const journal = await open(directory);
  await journal.append({ record: 'accepted', task: taskFrame({ id: 'a' }) });
  await journal.close();
  await appendFile(join(directory, 'journal'), Buffer.alloc(5000));
  const next = await open(directory);
  t.same([...next.state.tasks.keys()], ['a']);
  await next.close();
});

t.test('damage in the middle begins a new journal and keeps the old file', async (t) => {
  const directory = await folder(t);
  const path = join(directory, 'journal');
  const journal = await open(directory);
  await journal.append({ record: 'epoch', epoch: 5 });
  await journal.append({ record: 'accepted', task: taskFrame({ id: 'a' }) });
  await journal.close();
  const text = await readFile(path, 'utf8');
  await writeFile(path, text.replace('"epoch":5', '"epoch":6'));
  const next = await open(directory);
  t.not(next.state.journalId, journal.state.journalId);
  t.equal(next.state.epoch, 0);
  t.equal(next.state.tasks.size, 0);
  t.equal((await readdir(directory)).filter((name) => name.startsWith('journal.damaged')).length, 1);
  await next.close();
});

t.test('a renewed journal has another id, epoch 0 and no tasks, also after a crash', async (t) => {
  const directory = await folder(t);
  const journal = await open(directory);
  const former = journal.state.journalId;
  await journal.append({ record: 'epoch', epoch: 5 });
  await journal.append({ record: 'accepted', task: taskFrame({ id: 'a' }) });
  await journal.renew();
  t.match(journal.state, { epoch: 0 });
  t.not(journal.state.journalId, former);
  await journal.append({ record: 'accepted', task: taskFrame({ id: 'b' }) });
  const next = await reopened(directory);
  t.equal(next.state.journalId, journal.state.journalId);
  t.same([...next.state.tasks.keys()], ['b']);
  await Promise.all([journal.close(), next.close()]);
});

t.test('compaction during appends loses no record and applies none twice', async (t) => {
  const directory = await folder(t);
  const journal = await open(directory);
  const padding = 'x'.repeat(20_000);
  const waits: Promise<void>[] = [];
  for (let n = 0; n < 300; n++) {
    const id = `task-${n}`;
    waits.push(journal.append({ record: 'accepted', task: taskFrame({ id, params: { padding } }) }));
    waits.push(journal.append({ record: 'ended', end: ended(id) }));
    if (n % 10 !== 0) waits.push(journal.append({ record: 'acknowledged', id }));
    if (n % 7 === 0) await waits.at(-1);
    if (n % 11 === 0) await new Promise((done) => setImmediate(done));
  }
  await Promise.all(waits);
  await journal.close();
  const { size } = await stat(join(directory, 'journal'));
  t.ok(size < 4_000_000, `6 MB written, ${size} bytes left`);
  const next = await open(directory);
  t.same([...next.state.tasks.keys()], [...journal.state.tasks.keys()]);
  t.equal(next.state.tasks.size, 30);
  await next.close();
});

t.test('a record appended while a compaction opens its file is written once', async (t) => {
  const directory = await folder(t);
  const journal = await open(directory);
  await journal.append({ record: 'accepted', task: taskFrame({ id: 'big', params: { x: 'x'.repeat(1_100_000) } }) });
  const compacting = journal.append({ record: 'accepted', task: taskFrame({ id: 'a' }) });
  for (let turn = 0; turn < 5; turn++) await Promise.resolve();
  await Promise.all([compacting, journal.append({ record: 'accepted', task: taskFrame({ id: 'b' }) })]);
  const next = await reopened(directory);
  t.equal(next.state.journalId, journal.state.journalId, 'the journal is not taken for damaged');
  t.same([...next.state.tasks.keys()], ['big', 'a', 'b']);
  await Promise.all([journal.close(), next.close()]);
});

t.test('a short write is continued', async (t) => {
  const directory = await folder(t);
  const journal = await open(directory);
  const { handle, whole } = await fileHandleWrites(directory);
  handle.write = function short(this: FileHandle, text: string) {
    return whole.call(this, text.slice(0, text.length / 2));
  } as FileHandle['write'];
  t.teardown(() => {
    handle.write = whole;
  });
  await journal.append({ record: 'accepted', task: taskFrame({ id: 'a' }) });
  await journal.append({ record: 'accepted', task: taskFrame({ id: 'b' }) });
  const next = await reopened(directory);
  t.equal(next.state.journalId, journal.state.journalId);
  t.same([...next.state.tasks.keys()], ['a', 'b']);
  await Promise.all([journal.close(), next.close()]);
});

/** The prototype of all file handles, and its write method. */
async function fileHandleWrites(directory: string) {
  const file = await openFile(directory);
  const handle = Object.getPrototypeOf(file) as FileHandle;
  await file.close();
  return { handle, whole: handle.write };
}

t.test('when the disk refuses writes the journal retries, and reports nothing as durable before it is', async (t) => {
  const directory = await folder(t);
  const said: string[] = [];
  const note = (_fields: unknown, text: string) => void said.push(text);
  const log = Object.assign(Object.create(silentLogger), { error: note, info: note });
  const journal = await JournalFile.open({ directory, clock: systemClock, random: systemRandom, log });
  // With the directory removed, the next append makes the file due for compaction, and no new file
  // can be made.
  await journal.append({ record: 'epoch', epoch: 1 });
  await rm(directory, { recursive: true });
  const padding = 'x'.repeat(1_100_000);
  let durable = false;
  void journal.append({ record: 'accepted', task: taskFrame({ id: 'a', params: { padding } }) });
  const wait = journal.append({ record: 'epoch', epoch: 2 }).then(() => journal.append({ record: 'epoch', epoch: 3 }));
  void wait.then(() => {
    durable = true;
  });
  await new Promise((done) => setTimeout(done, 2300));
  t.notOk(durable);
  await mkdir(directory);
  await until(() => durable, 'the journal to be written after the disk works again');
  matchLists(t, said, [/not writable/, /writable again/], 'one log line for the outage, one for its end');
  t.equal(said.length, 2);
  const next = await reopened(directory);
  t.equal(next.state.epoch, 3);
  t.ok(next.state.tasks.has('a'));
  await Promise.all([journal.close(), next.close()]);
});

t.test('once a task with secrets has ended, the file no longer holds its parameters', async (t) => {
  const directory = await folder(t);
  const path = join(directory, 'journal');
  const journal = await open(directory);
  const params = (value: string) => ({ env: { PASSWORD: value }, secret_params: ['/env/PASSWORD'] });
  const kept = { env: { PASSWORD: 'no secret' } };
  await journal.append({ record: 'accepted', task: taskFrame({ id: 'a', params: params('hush-a') }) });
  await journal.append({ record: 'accepted', task: taskFrame({ id: 'b', params: params('hush-b') }) });
  await journal.append({ record: 'accepted', task: taskFrame({ id: 'c', params: params('hush-c') }) });
  await journal.append({ record: 'accepted', task: taskFrame({ id: 'd', params: kept }) });
  t.match(
    await readFile(path, 'utf8'),
    /hush-a[\s\S]*hush-b[\s\S]*hush-c/,
    'parameters of tasks that have not ended are kept',
  );
  await journal.append({ record: 'ended', end: ended('a') });
  await journal.append({ record: 'acknowledged', id: 'c' });
  const text = await readFile(path, 'utf8');
  t.notMatch(text, /hush-a|hush-c/);
  t.match(text, 'hush-b', 'the task that has not ended keeps its parameters');
  const inode = (await stat(path)).ino;
  await journal.append({ record: 'ended', end: ended('d') });
  t.equal((await stat(path)).ino, inode, 'the end of a task without secrets does not rewrite the file');
  const next = await reopened(directory);
  t.match(next.state.tasks.get('b'), { state: 'accepted', task: { params: params('hush-b') } });
  matchLists(t, [next.state.tasks.get('a')?.state, next.state.tasks.has('c')], ['ended', false]);
  await Promise.all([journal.close(), next.close()]);
});

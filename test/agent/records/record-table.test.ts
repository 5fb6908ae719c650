import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { recordFiles } from '../../../lib/agent/records/record-files.ts';
import { RecordTable } from '../../../lib/agent/records/record-table.ts';
import { messageOf } from '../../../lib/platform/errors.ts';
import { silentLogger as log } from '../../../lib/platform/log.ts';

interface Thing {
  id: string;
  colour: string;
}

const red: Thing = { id: 'a', colour: 'red' };
const blue: Thing = { id: 'a', colour: 'blue' };

async function tableIn(directory: string) {
  const table = new RecordTable<Thing>({
    log,
    noun: 'vm',
    files: recordFiles<Thing>(directory, ({ id }) => id),
    idOf: ({ id }) => id,
    errors: {
      notFound: (id) => new Error(`no ${id}`),
      unreadable: (id, damage) => new Error(`${id} cannot be read (${damage})`),
      unrecorded: (id, cause) => new Error(`${id} is unrecorded: ${messageOf(cause)}`),
    },
  });
  await table.load();
  return table;
}

const open = async (t: Test) => {
  const directory = join(t.testdir(), 'records');
  return { directory, table: await tableIn(directory) };
};

t.test('the next agent has what was saved, and nothing of what was removed', async (t) => {
  const { directory, table } = await open(t);
  await table.create({ ...red, id: 'b' }, async () => undefined);
  await table.create(red, (entry) => table.save(entry, blue));
  const next = await tableIn(directory);
  t.same([next.get('a').record, next.size, next.hasUnreadable], [blue, 2, false]);
  const removed = next.get('b');
  await next.remove(removed);
  t.notOk(next.has(removed));
  t.same((await tableIn(directory)).list(), [blue]);
});

t.test('a record that cannot be read is refused, counted and left as it is', async (t) => {
  const { directory } = await open(t);
  const torn = '{"version":1,"id":"a"';
  await writeFile(join(directory, 'a.json'), torn);
  await writeFile(join(directory, 'b.json'), JSON.stringify({ version: 2, id: 'b', colour: 'red' }));
  const table = await tableIn(directory);
  t.same([table.size, table.hasUnreadable, table.list()], [2, true, []]);
  t.throws(() => table.get('a'), /^a cannot be read \(.*JSON/);
  t.throws(() => table.find('b'), /^b cannot be read \(The record has version 2, and this agent writes 1\)/);
  t.match(table.unreadableReason('b'), /version 2/);
  t.equal(table.peek('b'), undefined);
  await t.rejects(
    table.create(red, async () => undefined),
    /^a cannot be read/,
  );
  t.throws(() => table.get('c'), /no c/);
  t.same([table.find('c'), table.unreadableReason('c')], [undefined, undefined]);
  t.equal(await readFile(join(directory, 'a.json'), 'utf8'), torn);
});

t.test('on a disk that takes nothing only an optional change is made', async (t) => {
  const { directory, table } = await open(t);
  await table.create(red, async () => undefined);
  const entry = table.get('a');
  await rm(directory, { recursive: true });
  await t.rejects(table.save(entry, blue), /a is unrecorded: ENOENT/);
  t.same(entry.record, red);
  await table.save(entry, blue, { isOptional: true });
  t.same(entry.record, blue);
  await t.rejects(
    table.create({ ...red, id: 'b' }, async () => t.fail('nothing is done without a record')),
    /b is unrecorded/,
  );
  t.equal(table.find('b'), undefined);
  await mkdir(directory);
  await table.create({ ...red, id: 'b' }, async () => undefined);
  await t.rejects(
    table.create({ ...blue, id: 'b' }, async () => undefined),
    /a record of vm b already/,
  );
  t.equal((await tableIn(directory)).size, 1);
});

t.test('work on one record waits, and does not begin once the record is removed', async (t) => {
  const { table } = await open(t);
  const order: string[] = [];
  const created = table.create(red, async () => void order.push('created'));
  const entry = table.get('a');
  const removed = table.withLock(entry, async () => {
    order.push('removed');
    await table.remove(entry);
  });
  const late = table.withLock(entry, async () => void order.push('late'));
  await created;
  await removed;
  await t.rejects(late, /no a/);
  t.same(order, ['created', 'removed']);
});

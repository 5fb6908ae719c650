import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { keptBootTime, readBootTime } from '../../../lib/agent/machine/boot-time.ts';

t.test('the time of a boot stays the same for this boot, whatever the clock of the machine says later', async (t) => {
  const file = join(t.testdir(), 'boot');
  const time = await readBootTime();
  t.match(time, /^\d{9,}$/);
  t.equal(await keptBootTime(file, 'one'), time);
  const earlier = String(Number(time) - 3600);
  await writeFile(file, `one ${earlier}\n`);
  t.equal(await keptBootTime(file, 'one'), earlier);
  t.equal(await keptBootTime(file, 'two'), time, 'another boot');
  t.equal(await readFile(file, 'utf8'), `two ${time}\n`);
});

t.test('a file that is damaged or cannot be written does no harm', async (t) => {
  const folder = t.testdir({ damaged: 'one\n', text: 'one soon\n' });
  const time = await readBootTime();
  for (const name of ['damaged', 'text', 'missing/boot']) t.equal(await keptBootTime(join(folder, name), 'one'), time);
  await mkdir(join(folder, 'directory'));
  t.equal(await keptBootTime(join(folder, 'directory'), 'one'), time);
});

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { link, mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { FILE_TIMEOUT_MS } from '../../../support/patience.ts';

t.setTimeout(FILE_TIMEOUT_MS);

t.test('a layer that removes a directory with very many files does not take memory', async (t) => {
  const folder = t.testdir({ one: {}, two: { other: 'x' } });
  const many = join(folder, 'one/many');
  await mkdir(many);
  await writeFile(join(many, 'file'), '');
  // Below the maximum of links of one file.
  for (let at = 0; at < 60_000; at += 100)
    await Promise.all(Array.from({ length: 100 }, (_, n) => link(join(many, 'file'), join(many, `${at + n}`))));
  // A list of the entries does not fit in a heap of 12 MiB.
  const child = spawn(
    process.execPath,
    [
      '--max-old-space-size=12',
      join(import.meta.dirname, 'copy-child.ts'),
      ...['root', 'one', 'two'].map((name) => join(folder, name)),
    ],
    { stdio: ['ignore', 'ignore', 'ignore'] },
  );
  const [code] = await once(child, 'close');
  t.equal(code, 0);
  t.same(await readdir(join(folder, 'root')), ['other']);
});

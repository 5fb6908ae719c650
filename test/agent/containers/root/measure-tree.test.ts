import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { measureTree } from '../../../../lib/agent/containers/root/measure-tree.ts';

t.test('a tree has the bytes of its files, and links are not followed', async (t) => {
  const tree = t.testdir({ one: '12345', folder: { two: '678' } });
  await mkdir(join(tree, 'empty'));
  await symlink('/', join(tree, 'root'));
  t.equal(await measureTree(tree, 5), 9, 'a link has the length of its target');
  await t.rejects(measureTree(tree, 4), /more than 4 files and directories/);
});

t.test('a tree that is too deep is refused', async (t) => {
  const tree = t.testdir();
  await mkdir(join(tree, 'd/'.repeat(501)), { recursive: true });
  await t.rejects(measureTree(tree, 10_000), /more than 500 deep/);
});

t.test('a tree with very many files does not take memory', async (t) => {
  const tree = t.testdir();
  const name = 'x'.repeat(80);
  for (let at = 0; at < 60_000; at += 100)
    await Promise.all(Array.from({ length: 100 }, (_, n) => writeFile(join(tree, `${at + n}-${name}`), '')));
  // A list of the entries does not fit in a heap of 12 MiB.
  const child = spawn(process.execPath, [
    '--max-old-space-size=12',
    join(import.meta.dirname, 'measure-child.ts'),
    tree,
  ]);
  let output = '';
  child.stdout.on('data', (piece) => {
    output += piece;
  });
  const [code] = await once(child, 'close');
  t.same([code, output], [0, '0\n']);
});

/**
 * The file with the name of the machine. The kernel's name is not changed here: it would be this
 * machine's.
 */
import { execFile } from 'node:child_process';
import { link, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t from 'tap';
import { writeNameFile } from '../../../lib/agent/machine/rename-host.ts';

const module = fileURLToPath(new URL('../../../lib/agent/machine/rename-host.ts', import.meta.url));

t.test('the file is replaced, so a crash leaves the old name or the new one', async (t) => {
  const directory = t.testdir({ hostname: 'old\n' });
  const file = join(directory, 'hostname');
  await link(file, join(directory, 'before'));
  await writeNameFile(file, 'web-7');
  t.equal(await readFile(file, 'utf8'), 'web-7\n');
  t.equal(await readFile(join(directory, 'before'), 'utf8'), 'old\n', 'it was not written in place');
  t.strictSame((await readdir(directory)).sort(), ['before', 'hostname']);
});

t.test('a file that is a mount of its own is written in place', async (t) => {
  const file = join(t.testdir(), 'hostname');
  await writeFile(file, 'old\n');
  const write = `import(process.argv[1]).then(({ writeNameFile }) => writeNameFile(process.argv[2], 'web-7'))`;
  const script = 'mount --bind "$2" "$2" && exec "$0" -e "$3" "$1" "$2"';
  // In a namespace of its own, in which the mount ends with the process.
  await promisify(execFile)('unshare', [
    '--mount',
    '--map-root-user',
    'sh',
    '-c',
    script,
    process.execPath,
    module,
    file,
    write,
  ]);
  t.equal(await readFile(file, 'utf8'), 'web-7\n');
});

/** The script of `install-agent` by itself, as Ur runs it: where it may not load a package from. */
import { execFile, execFileSync } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import t from 'tap';

const PROGRAM = path.join(import.meta.dirname, '../../../lib/control/ur/install-agent.mjs');

/** The script's exit code and what it says. */
async function install(source: string): Promise<{ code: unknown; said: string }> {
  const order = { source, key: KEY, directory: '/nowhere', options: {} };
  return new Promise((resolve) => {
    execFile(process.execPath, [PROGRAM, JSON.stringify(order)], (error, _stdout, said) =>
      resolve({ code: error?.code, said }),
    );
  });
}

const KEY = `-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
-----END PUBLIC KEY-----
`;

t.test('only a regular file is read, and not without end', async (t) => {
  const directory = t.testdir();
  const [fifo, folder] = [path.join(directory, 'fifo'), path.join(directory, 'folder')];
  execFileSync('mkfifo', [fifo]);
  await mkdir(folder);
  const said = 'the package is not a regular file\n';
  for (const file of ['/dev/zero', fifo, folder, `file://${fifo}`])
    t.strictSame(await install(file), { code: 1, said }, file);
  execFileSync('truncate', ['--size', '65M', path.join(directory, 'large')]);
  t.match(await install(path.join(directory, 'large')), { code: 1, said: /more than 67108864 bytes/ });
});

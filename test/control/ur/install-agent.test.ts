/**
 * The script of `install-agent` by itself, as Ur runs it: where it may not load a package from, and
 * what it says then.
 */
import { execFile, execFileSync } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import t from 'tap';
import { reasonNotInstallable } from '../../../lib/control/ur/agent-installation.ts';

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

t.test('a URL that cannot be loaded is not in what the script says', async (t) => {
  const sources: [source: string, name: string][] = [
    ['http://user:a-password@127.0.0.1/agent.tar', 'TypeError'],
    ['http://user:a-password@127.0.0.1:x/agent.tar', 'ERR_INVALID_URL'],
    ['ftp://user:a-password@127.0.0.1/agent.tar', 'ENOENT'],
    ['file://user:a-password@host/agent.tar', 'ERR_INVALID_URL'],
    ['http://127.0.0.1:1/agent.tar?token=a-password', 'TypeError'],
  ];
  for (const [source, name] of sources)
    t.strictSame(await install(source), { code: 1, said: `the package cannot be loaded: ${name}\n` }, source);
});

t.test('a URL with a user or a password is refused before anything is sent', async (t) => {
  const code = 'PackageSourceNotAllowed';
  for (const url of [
    'http://user:a-password@host/agent.tar',
    'https://user@host/agent.tar',
    'ftp://:a@host/agent.tar',
  ]) {
    const end = reasonNotInstallable({ package_file: url });
    t.match(end, { outcome: 'failure', error: { code } }, url);
    t.notMatch(JSON.stringify(end), 'a-password');
  }
  for (const file of ['/a@b:c.tar', 'http://host/agent.tar?user=a:b@c', 'file:///agent.tar'])
    t.equal(reasonNotInstallable({ package_file: file }), undefined, file);
});

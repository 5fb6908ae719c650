/** Commands as another user of this machine, in a directory, with a file. */
import { chmod, chown, lstat, mkdir, mkdtemp, readdir, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import t, { type Test } from 'tap';
import { takeDataDirectory } from '../../../lib/agent/data-directory.ts';
import { runCommand } from '../../../lib/agent/machine/command.ts';
import type { Command } from '../../../lib/agent/machine/machine.ts';
import { launchRefusal, ownProcess } from '../../../lib/agent/machine/run-as.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';

const asRoot = { skip: process.geteuid?.() === 0 ? false : 'only root can become another user' };

async function folder(t: Test, mode = 0o700): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'run-as-'));
  await chmod(path, mode);
  t.teardown(() => rm(path, { recursive: true, force: true }));
  return path;
}

async function run(t: Test, command: Partial<Command>) {
  const directory = await folder(t);
  const { signal } = new AbortController();
  const output: string[] = [];
  const given = { script: '', args: [], env: {}, ...command };
  const how = { id: random.uuid(), signal, begin: async () => {}, output: () => {} };
  const result = await runCommand({ clock, directory, bootId: 'boot' }, given, how);
  return { ...result, left: await readdir(directory), output };
}

const refusal = (fields: Partial<Command>, own?: Parameters<typeof launchRefusal>[2]) =>
  launchRefusal(clock, { script: '', args: [], env: {}, ...fields }, own);

t.test('a command runs as its user, with the groups, home and name of that user', asRoot, async (t) => {
  const script = 'id -un; id -G; id -G games; echo "$HOME $USER $LOGNAME $X"; cat /etc/shadow';
  const { stdout, exitCode, left } = await run(t, { user: 'games', script, env: { X: 'y' } });
  const [name, own, known, variables] = stdout.split('\n');
  t.equal(name, 'games');
  t.equal(own, known, 'its groups, and none of root');
  t.equal(variables, '/usr/games games games y');
  t.not(exitCode, 0, 'it may not read what root alone may');
  t.same(left, []);
});

t.test('no variable of a command reaches a process that is still root', asRoot, async (t) => {
  const open = await folder(t, 0o777);
  const env = { LD_DEBUG: 'statistics', LD_DEBUG_OUTPUT: join(open, 'loaded') };
  const { stdout } = await run(t, { user: 'nobody', script: 'id -u; env | grep -c CN_AGENT', env });
  const [uid, left] = stdout.split('\n');
  t.equal(left, '0', 'the names under which the variables came are gone');
  const loaded = await Promise.all((await readdir(open)).map((name) => stat(join(open, name))));
  t.ok(loaded.length > 0, 'the loader wrote a file for each program');
  t.same([...new Set(loaded.map((file) => String(file.uid)))], [uid]);
});

t.test('the variables of another user have their values to the letter', asRoot, async (t) => {
  const env = { A: `a b'"; $(id) \`id\` \\n\n=`, IFS: 'x', EMPTY: '', PATH: '/usr/bin:/bin' };
  const { stdout } = await run(t, { user: 'nobody', script: 'printf "%s|" "$A" "$EMPTY" "$PATH" "$HOME"', env });
  t.equal(stdout, `${env.A}||/usr/bin:/bin|/nonexistent|`);
});

t.test('a command of another user has the interpreter of its first line', asRoot, async (t) => {
  const script = '#!/bin/bash\n[[ $1 == a* ]] && echo "$1 $(id -un)"';
  t.match(await run(t, { user: 'nobody', script, args: ['a \'b"; $(id)'] }), { stdout: 'a \'b"; $(id) nobody\n' });
});

t.test('nothing but the command itself reaches a shell unquoted', asRoot, async (t) => {
  const odd = join(await folder(t, 0o755), `a b"; touch $0; '$(id)\n-`);
  await mkdir(odd);
  for (const user of [undefined, 'nobody']) {
    const who = user === undefined ? {} : { user };
    t.match(await run(t, { ...who, directory: odd, script: 'pwd' }), { stdout: `${odd}\n` });
    t.equal(await refusal({ ...who, directory: odd }), undefined);
  }
  t.same(await readdir(dirname(odd)), [odd.slice(dirname(odd).length + 1)]);
});

t.test('the file can be read by its user alone, and is gone when the command has ended', asRoot, async (t) => {
  const file = Buffer.from([0, 1, 255, 10]);
  const script =
    'stat -c "%a %U" "$CHEF_PUSH_JOB_FILE" "$0"; od -An -tu1 "$CHEF_PUSH_JOB_FILE"; echo "$CHEF_PUSH_JOB_FILE"';
  for (const user of ['nobody', 'root', undefined]) {
    const { stdout, left } = await run(t, { ...(user === undefined ? {} : { user }), script, file });
    const [mode, ofScript, bytes, path = ''] = stdout.split('\n');
    t.equal(mode, `600 ${user ?? 'root'}`);
    t.equal(ofScript, `700 ${user ?? 'root'}`);
    t.equal(bytes?.trim(), '0   1 255  10');
    await t.rejects(lstat(path), { code: 'ENOENT' });
    if (user !== undefined) await t.rejects(lstat(dirname(path)), { code: 'ENOENT' });
    t.same(left, []);
  }
});

t.test('its user can replace neither the script nor the file', asRoot, async (t) => {
  const script = 'cd "$(dirname "$0")"; stat -c "%a %U" .; touch x; ln -sf /etc/passwd file; rm -f script; ls';
  const { stdout } = await run(t, { user: 'nobody', script, file: Buffer.from('x') });
  t.equal(stdout, '711 root\n', 'it cannot even list the directory');
});

t.test('a command without a file has no CHEF_PUSH_JOB_FILE', async (t) => {
  const script = 'echo "[$CHEF_PUSH_JOB_FILE]"';
  t.match(await run(t, { script }), { stdout: '[]\n' });
  t.match(await run(t, { script, env: { CHEF_PUSH_JOB_FILE: 'a' }, file: Buffer.from('') }), {
    stdout: /run-as-.*file\]/,
  });
});

t.test('the next agent removes what the commands of a killed agent left outside its directory', async (t) => {
  const path = await folder(t);
  const left = await folder(t);
  for (const name of ['script', 'file']) await writeFile(join(left, name), '');
  await mkdir(join(path, 'run'));
  await symlink(left, join(path, 'run', 'id.elsewhere'));
  const { release, runDirectory } = await takeDataDirectory(path);
  t.teardown(release);
  await t.rejects(stat(left), { code: 'ENOENT' });
  t.same(await readdir(runDirectory), []);
});

t.test('only a directory of the agent is emptied, whatever has its name by now', async (t) => {
  const path = await folder(t);
  const victim = await folder(t);
  const names = ['script', 'file'];
  const filled = async (directory: string) => {
    for (const name of names) await writeFile(join(directory, name), 'precious');
    return directory;
  };
  await filled(victim);
  const places = {
    'a link to a directory': join(await folder(t), 'link'),
    'a directory in which others may write': await filled(await folder(t, 0o777)),
    nothing: '/no/such',
  };
  await symlink(victim, places['a link to a directory']);
  await mkdir(join(path, 'run'));
  for (const [number, place] of Object.values(places).entries())
    await symlink(place, join(path, 'run', `${number}.elsewhere`));
  const { release, runDirectory } = await takeDataDirectory(path);
  t.teardown(release);
  t.same((await readdir(victim)).toSorted(), names.toSorted(), 'what a link leads to is left alone');
  t.same((await readdir(places['a directory in which others may write'])).toSorted(), names.toSorted());
  t.ok((await lstat(places['a link to a directory'])).isSymbolicLink());
  t.same(await readdir(runDirectory), []);
});

t.test('a directory of another user is not emptied', asRoot, async (t) => {
  const path = await folder(t);
  const theirs = await folder(t);
  await writeFile(join(theirs, 'script'), '');
  await chown(theirs, 12_345, 12_345);
  await mkdir(join(path, 'run'));
  await symlink(theirs, join(path, 'run', 'id.elsewhere'));
  const { release } = await takeDataDirectory(path);
  t.teardown(release);
  t.same(await readdir(theirs), ['script']);
});

t.test('what cannot run is refused with a sentence', async (t) => {
  const root = { ...ownProcess(), isRoot: true };
  const secret = await folder(t);
  const rows: [string, Partial<Command>, Parameters<typeof launchRefusal>[2], RegExp][] = [
    ['an unknown user', { user: 'no-such-user' }, root, /^this server has no user "no-such-user"$/],
    ['an account by its number', { user: '0' }, root, /has no user "0"/],
    ['an option of getent', { user: '--help' }, root, /has no user "--help"/],
    ['a user with a NUL', { user: 'a\0b' }, root, /has no user/],
    ['a user, but no root', { user: 'nobody' }, { ...root, isRoot: false }, /agent does not run as root.*"nobody"/],
    ['no setpriv', { user: 'nobody' }, { ...root, path: '/no/such:relative' }, /setpriv is not on the agent's PATH/],
    [
      'a missing directory',
      { directory: '/no/such' },
      root,
      /^the directory "\/no\/such" does not exist, or the agent/,
    ],
    ['a file', { directory: '/etc/passwd' }, root, /does not exist/],
    ['a relative directory', { directory: 'tmp' }, root, /"tmp" is not an absolute path/],
    ['a directory with a NUL', { directory: '/a\0b' }, root, /is not an absolute path/],
  ];
  for (const [name, command, own, message] of rows) t.match(await refusal(command, own), message, name);
  t.equal(await refusal({}), undefined);
  t.equal(await refusal({ directory: secret }), undefined);
  if (!ownProcess().isRoot) return;
  t.match(await refusal({ user: 'nobody', directory: secret }), /does not exist, or user "nobody" may not enter it/);
  t.equal(await refusal({ user: 'nobody', directory: '/' }), undefined);
});

t.test('a user that is gone when the command starts fails it, and nothing runs', asRoot, async (t) => {
  await t.rejects(run(t, { user: 'no-such-user', script: 'echo ran' }), { code: 'SpawnFailed', message: /no user/ });
});

/** Where a copy from a server arrives, while other users of this machine change the way to it. */
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  lchownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import t, { type Test } from 'tap';
import { Staging } from '../../../lib/cli/copy/staging.ts';
import { lacks } from '../../support/debian-programs.ts';
import { cannotMount, mountedFolder } from '../../support/mounted-folder.ts';

const isRoot = process.getuid?.() === 0;
/** The uid of another user. */
const OTHER = 12345;

/** Copies a file of the name `job` to `target`. `meanwhile` is called while it arrives. */
async function copied(target: string, meanwhile: () => void = () => undefined): Promise<void> {
  await using staging = await Staging.open(target, { kind: 'file', name: 'job' });
  writeFileSync(staging.place, 'content');
  meanwhile();
  await staging.settle();
}

/** Copies a directory with the file `deep/job`. */
async function copiedTree(target: string, meanwhile: () => void = () => undefined): Promise<void> {
  await using staging = await Staging.open(target, { kind: 'tree' });
  mkdirSync(path.join(staging.place, 'deep'));
  writeFileSync(path.join(staging.place, 'deep/job'), 'content');
  meanwhile();
  await staging.settle();
}

/**
 * The folders `home` and `etc`, on whose way nobody but this user, or root, may change anything.
 */
async function places(t: Test): Promise<Record<'root' | 'home' | 'etc', string>> {
  const root = await mountedFolder(t);
  const [home, etc] = [path.join(root, 'home'), path.join(root, 'etc')];
  for (const folder of [home, etc]) mkdirSync(folder, { mode: 0o755 });
  return { root, home, etc };
}

t.test('a copy arrives in the directory that was there when it began', async (t) => {
  const targets: Record<string, (inbox: string) => [copy: typeof copied, target: string, place: string]> = {
    'a file into a directory': (inbox) => [copied, `${inbox}/`, 'job'],
    'a file of a name': (inbox) => [copied, `${inbox}/named`, 'named'],
    'a file into a new directory': (inbox) => [copied, `${inbox}/new/one/`, 'new/one/job'],
    'a directory': (inbox) => [copiedTree, inbox, 'deep/job'],
    'a new directory': (inbox) => [copiedTree, `${inbox}/new`, 'new/deep/job'],
  };
  for (const [name, of] of Object.entries(targets))
    await t.test(name, async (t) => {
      const { home, etc } = await places(t);
      const inbox = path.join(home, 'inbox');
      mkdirSync(path.join(inbox, 'deep'), { recursive: true });
      const [copy, target, place] = of(inbox);
      await copy(target, () => {
        renameSync(inbox, path.join(home, 'was'));
        symlinkSync('../etc', inbox);
      });
      t.strictSame(readdirSync(etc), []);
      t.equal(readFileSync(path.join(home, 'was', place), 'utf8'), 'content');
      t.notOk(readdirSync(path.join(home, 'was')).some((each) => each.startsWith('.cnapi-cp')));
    });
});

t.test('a link on the way is followed if nobody else may change it', async (t) => {
  const { root, home, etc } = await places(t);
  symlinkSync('../etc', path.join(home, 'link'));
  symlinkSync(path.join(home, 'link'), path.join(root, 'absolute'));
  await copied(path.join(home, 'link/'));
  t.strictSame(readdirSync(etc), ['job']);
  await copied(path.join(root, 'absolute/new/'));
  t.strictSame(readdirSync(path.join(etc, 'new')), ['job']);
  await copiedTree(path.join(root, 'absolute'));
  t.strictSame(readdirSync(path.join(etc, 'deep')), ['job']);

  symlinkSync('nowhere', path.join(home, 'dangling'));
  await t.rejects(copiedTree(path.join(home, 'dangling')), { message: /dangling is not a directory$/ });
  await copied(path.join(home, 'dangling'));
  t.equal(readFileSync(path.join(home, 'dangling'), 'utf8'), 'content', 'it is replaced');
  chmodSync(home, 0o775);
  await t.rejects(copied(path.join(home, 'link/')), { message: /home\/link is a symbolic link that another user may/ });
});

t.test('a link on the way that another user may change is refused', { skip: !isRoot }, async (t) => {
  const rows: Record<string, (places: { root: string; home: string }) => void> = {
    'of another user': ({ home }) => lchownSync(path.join(home, 'link'), OTHER, OTHER),
    'of root in a directory of another user': ({ home }) => chownSync(home, OTHER, OTHER),
    'of root in a directory like /tmp': ({ home }) => chmodSync(home, 0o1777),
    'of root in a directory that another user may exchange': ({ root }) => chmodSync(root, 0o777),
  };
  for (const [name, change] of Object.entries(rows))
    await t.test(name, async (t) => {
      const { root, home, etc } = await places(t);
      symlinkSync('../etc', path.join(home, 'link'));
      change({ root, home });
      const refusal = { message: /home\/link is a symbolic link that another user may change$/ };
      for (const target of ['link', 'link/', 'link/new/']) {
        await t.rejects(copied(path.join(home, target)), refusal);
        await t.rejects(copiedTree(path.join(home, target)), refusal);
      }
      t.strictSame(readdirSync(etc), []);
      t.strictSame(readdirSync(home), ['link']);
    });
});

t.test('a directory that is mounted in the target is not crossed', { skip: cannotMount() }, async (t) => {
  const { home, etc } = await places(t);
  const deep = path.join(home, 'deep');
  mkdirSync(deep);
  const sources: Record<string, string[]> = {
    'of another device': ['-t', 'tmpfs', 'none', deep],
    'of the same device': ['--bind', etc, deep],
  };
  for (const [name, words] of Object.entries(sources)) {
    t.equal(spawnSync('mount', words).status, 0);
    await t.rejects(
      copiedTree(home),
      { message: /home\/deep is on another file system; .* Nothing was changed$/ },
      name,
    );
    t.strictSame(readdirSync(deep), []);
    t.equal(spawnSync('umount', [deep]).status, 0);
  }
});

/**
 * Copies a directory with the mode 0500 to `target`, in a process of its own. Returns what has
 * failed.
 */
function copiedApart(target: string, { under = [], uid = 0 }: { under?: readonly string[]; uid?: number }): string {
  const module = new URL('../../../lib/cli/copy/staging.ts', import.meta.url).href;
  const program = `
    import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
    const { Staging } = await import(${JSON.stringify(module)});
    process.setuid(${uid});
    try {
      await using staging = await Staging.open(${JSON.stringify(target)}, { kind: 'tree' });
      mkdirSync(staging.place + '/locked');
      writeFileSync(staging.place + '/locked/job', 'content');
      chmodSync(staging.place + '/locked', 0o500);
      await staging.settle();
    } catch (error) {
      console.log(error.message);
    }`;
  const [command = '', ...words] = [...under, process.execPath, '--input-type=module', '--eval', program];
  const { stdout, stderr } = spawnSync(command, words, { encoding: 'utf8' });
  return stdout + stderr;
}

t.test('a user who is not root copies a directory that its owner may not write', { skip: !isRoot }, async (t) => {
  const { root, home } = await places(t);
  chmodSync(root, 0o711);
  chownSync(home, OTHER, OTHER);
  chmodSync(home, 0o311);
  t.equal(copiedApart(home, { uid: OTHER }), '');
  t.equal(statSync(path.join(home, 'locked')).mode & 0o777, 0o500);
  t.equal(readFileSync(path.join(home, 'locked/job'), 'utf8'), 'content');
});

const skip = !isRoot || lacks('unshare', 'umount');
t.test('without /proc a directory that another user may change is refused', { skip }, async (t) => {
  const under = ['unshare', '--mount', 'sh', '-c', 'umount --lazy /proc && exec "$0" "$@"'];
  const { root, home } = await places(t);
  t.equal(copiedApart(path.join(home, 'new'), { under }), '', 'others are as with it');
  t.ok(existsSync(path.join(home, 'new/locked/job')));
  symlinkSync('home', path.join(root, 'link'));
  t.equal(copiedApart(path.join(root, 'link/again'), { under }), '');
  chmodSync(home, 0o1777);
  t.equal(copiedApart(path.join(home, 'in-tmp'), { under }), '');
  t.strictSame(readdirSync(home).sort(), ['again', 'in-tmp', 'new']);
  for (const change of [() => chmodSync(home, 0o777), () => chownSync(home, OTHER, OTHER)]) {
    change();
    const refusal = /another user may change \S+home, which is not safe on this system\n$/;
    t.match(copiedApart(home, { under }), refusal);
    t.match(copiedApart(path.join(home, 'new'), { under }), refusal);
    chmodSync(home, 0o755);
  }
  t.strictSame(readdirSync(home).sort(), ['again', 'in-tmp', 'new']);
});

/** The scripts of `cnapi cp` in the shells and with the programs that servers and VMs have. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  chmodSync,
  chownSync,
  existsSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import t, { type Test } from 'tap';
import { packTree } from '../../../../lib/cli/copy/pack-tree.ts';
import { RECEIVE, SEND_TREE, SENT_CHANGED } from '../../../../lib/protocol/streams/copy/copy-scripts.ts';
import { cannotMount, mountedFolder } from '../../../support/mounted-folder.ts';

const skip = cannotMount();
const isRoot = process.getuid?.() === 0;
/** The uid of another user. */
const OTHER = 12345;
const LONG = `${'long-'.repeat(30)}name`;

interface Ran {
  code: number | null;
  said: string;
}

/** A folder whose programs are those of BusyBox; undefined: those of this machine. */
function busyboxIn(t: Test): string | undefined {
  const [busybox = ''] = spawnSync('sh', ['-c', 'command -v busybox']).stdout.toString().split('\n');
  if (busybox === '') return undefined;
  const folder = t.testdir();
  spawnSync(busybox, ['--install', '-s', folder]);
  return folder;
}

function run(programs: string | undefined, script: string, args: readonly string[], input: Buffer): Promise<Ran> {
  const PATH = programs ?? process.env.PATH ?? '';
  const child = spawn(programs === undefined ? '/bin/sh' : path.join(programs, 'sh'), ['-c', script, 'sh', ...args], {
    env: { PATH },
    cwd: tmpdir(),
    stdio: ['pipe', 'ignore', 'pipe'],
  });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (piece) => {
    said += piece;
  });
  child.stdin.on('error', () => undefined);
  child.stdin.end(input);
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, said })));
}

const folderOf = (t: Test) => ({
  source: {
    a: { deep: { file: 'deep' } },
    'new\nline': 'line',
    '-dash': 'dash',
    '.hidden': 'hidden',
    [LONG]: { [LONG]: 'long' },
  },
  target: t.fixture('dir', { kept: 'kept', a: { other: 'other' } }),
  outside: {},
});

/** Paths in a folder whose parent directories only root can change. */
async function placesOfRoot(t: Test): Promise<Record<'root' | 'source' | 'target', string>> {
  const root = await mountedFolder(t);
  const [source, target] = [path.join(root, 'source'), path.join(root, 'target')];
  mkdirSync(source);
  mkdirSync(path.join(target, 'a'), { recursive: true });
  return { root, source, target };
}

for (const kind of ['of this machine', 'of BusyBox'])
  t.test(`with the programs ${kind}`, async (t) => {
    const programs = kind === 'of BusyBox' ? busyboxIn(t) : undefined;
    if (kind === 'of BusyBox' && programs === undefined) return t.comment('there is no BusyBox');
    const receiveTree = async (source: string, target: string) =>
      run(programs, RECEIVE, ['tree', target, '', '', ''], await buffer(Readable.from(packTree(source))));
    const receiveFile = (target: string, content: string, size = content.length) =>
      run(programs, RECEIVE, ['file', target, 'named', '640', String(size)], Buffer.from(content));
    const done = { code: 0, said: '' };
    const placesOf = (t: Test) => {
      const root = t.testdir(folderOf(t));
      return {
        root,
        source: path.join(root, 'source'),
        target: path.join(root, 'target'),
        outside: path.join(root, 'outside'),
      };
    };

    await t.test('a directory is merged into one that is there, or made', async (t) => {
      const { root, source, target } = placesOf(t);
      symlinkSync('a/deep', path.join(source, 'link'));
      chmodSync(path.join(source, '-dash'), 0o4750);
      for (const to of [target, path.join(root, 'new/one')]) {
        t.strictSame(await receiveTree(source, to), done);
        t.equal(readFileSync(path.join(to, 'a/deep/file'), 'utf8'), 'deep');
        t.equal(readFileSync(path.join(to, 'new\nline'), 'utf8'), 'line');
        t.equal(readFileSync(path.join(to, '.hidden'), 'utf8'), 'hidden');
        t.equal(readFileSync(path.join(to, LONG, LONG), 'utf8'), 'long');
        t.equal(readlinkSync(path.join(to, 'link')), 'a/deep');
        t.equal(statSync(path.join(to, '-dash')).mode & 0o7777, 0o750);
        t.notOk(readdirSync(to).some((name) => name.startsWith('.cnapi-cp')));
      }
      t.equal(readFileSync(path.join(target, 'a/other'), 'utf8'), 'other');
      t.strictSame(readdirSync(root).sort(), ['new', 'outside', 'source', 'target']);
    });

    await t.test('a file replaces a file or a link, and goes into a directory', async (t) => {
      const { target, outside } = placesOf(t);
      symlinkSync(path.join(outside, 'secret'), path.join(target, 'link'));
      t.strictSame(await receiveFile(path.join(target, 'link'), 'x'), done);
      t.ok(lstatSync(path.join(target, 'link')).isFile());
      t.strictSame(readdirSync(outside), []);
      t.strictSame(await receiveFile(target, 'y'), done);
      t.equal(readFileSync(path.join(target, 'named'), 'utf8'), 'y');
      t.equal(statSync(path.join(target, 'named')).mode & 0o777, 0o640);
      t.match(await receiveFile(path.join(target, 'kept/x'), 'x'), { code: 1, said: /kept is not a directory/ });
      t.match(await receiveFile(path.join(target, 'kept/'), 'x'), { code: 1, said: /kept is not a directory/ });
      t.match(await receiveFile(path.join(target, 'none/x'), 'x'), { code: 1, said: /no such directory/ });
      t.match(await receiveFile(path.join(target, 'kept'), 'x', 2), { code: 1, said: /only a part/ });
      mkdirSync(path.join(target, 'full/named'), { recursive: true });
      t.match(await receiveFile(path.join(target, 'full'), 'x'), { code: 1, said: /named is a directory/ });
      t.equal(readFileSync(path.join(target, 'kept'), 'utf8'), 'kept');
    });

    await t.test('no link in the target is followed', async (t) => {
      const { source, target, outside } = placesOf(t);
      const inTarget = path.join(target, 'a/deep');
      symlinkSync(outside, inTarget);
      const before = readdirSync(target);
      t.match(await receiveTree(source, target), {
        code: 1,
        said: /a\/deep is not a directory; nothing was changed\n$/,
      });
      t.strictSame(readdirSync(outside), []);
      t.strictSame(readdirSync(target), before);
    });

    await t.test('an archive whose end is missing changes nothing', async (t) => {
      const { source, target } = placesOf(t);
      const archive = await buffer(Readable.from(packTree(source)));
      // The end consists of the header of the last file and two empty blocks.
      const whole = archive.subarray(0, archive.length - 3 * 512);
      for (const input of [whole, archive.subarray(0, 700), Buffer.alloc(0)]) {
        const ran = await run(programs, RECEIVE, ['tree', target, '', '', ''], input);
        t.match(ran, { code: 1, said: /was not changed/ });
        t.strictSame(readdirSync(target).sort(), ['a', 'kept']);
        t.strictSame(readdirSync(path.join(target, 'a')), ['other']);
      }
    });

    await t.test('a link on the way that another user may change is not followed', { skip: !isRoot }, async (t) => {
      const { root, source, target } = await placesOfRoot(t);
      const way = path.join(root, 'way');
      symlinkSync('target', way);
      t.strictSame(await receiveTree(source, `${way}/below`), done, 'one of root, in a directory of root, is');
      t.strictSame(await receiveFile(`${way}/below/../a/`, 'x'), done);
      const before = readdirSync(target);
      const rows: Record<string, () => void> = {
        'of another user': () => lchownSync(way, OTHER, OTHER),
        // Its owner could exchange it for another one while it is read.
        'of root in a directory of another user': () => chownSync(root, OTHER, OTHER),
        'of root in a directory that a group may write': () => chmodSync(root, 0o775),
        'of root in a directory that all may write': () => chmodSync(root, 0o757),
        // It may be a hard link to a link that root has elsewhere.
        'of root in a directory like /tmp': () => chmodSync(root, 0o1777),
      };
      for (const [name, change] of Object.entries(rows)) {
        change();
        for (const to of [way, `${way}/`, `${way}/x`]) {
          const said = /way is a symbolic link that another user may change\n$/;
          t.match(await receiveTree(source, to), { code: 1, said }, name);
          t.match(await receiveFile(to, 'x'), { code: 1, said }, name);
        }
        lchownSync(way, 0, 0);
        chownSync(root, 0, 0);
        chmodSync(root, 0o755);
      }
      t.strictSame(readdirSync(target), before);
    });

    await t.test(
      'a link is not followed in a directory that another user may exchange',
      { skip: !isRoot },
      async (t) => {
        const { root, target } = await placesOfRoot(t);
        const theirs = path.join(root, 'theirs');
        mkdirSync(path.join(theirs, 'of-root'), { recursive: true });
        symlinkSync(target, path.join(theirs, 'of-root/link'));
        chownSync(theirs, OTHER, OTHER);
        const said = /link is a symbolic link that another user may change\n$/;
        t.match(await receiveFile(path.join(theirs, 'of-root/link/x'), 'x'), { code: 1, said });
        t.strictSame(await receiveFile(path.join(theirs, 'of-root/x'), 'x'), done, 'a directory is entered');
        chownSync(theirs, 0, 0);
        chmodSync(theirs, 0o1777);
        t.strictSame(await receiveFile(path.join(theirs, 'of-root/link/x'), 'x'), done, 'nobody may rename it in /tmp');
        chownSync(path.join(theirs, 'of-root'), OTHER, OTHER);
        t.match(await receiveFile(path.join(theirs, 'of-root/link/y'), 'y'), { code: 1, said });
      },
    );

    await t.test('a directory of the same device that is mounted in the target is not crossed', { skip }, async (t) => {
      const { root, source, target } = await placesOfRoot(t);
      const elsewhere = path.join(root, 'elsewhere');
      for (const folder of [elsewhere, path.join(source, 'a')]) mkdirSync(folder);
      for (const file of ['a/f', 'b']) writeFileSync(path.join(source, file), '');
      t.equal(spawnSync('mount', ['--bind', elsewhere, path.join(target, 'a')]).status, 0);
      const said = /target\/a is on another file system; copy into it by itself. Nothing was changed\n$/;
      t.match(await receiveTree(source, target), { code: 1, said });
      t.strictSame([readdirSync(elsewhere), readdirSync(target)], [[], ['a']]);
    });

    const signalled = async (t: Test) => {
      const { root, target } = placesOf(t);
      const signalling = path.join(root, 'programs');
      mkdirSync(signalling);
      const script = `#!/bin/sh\nPATH='${process.env.PATH}'\nmade=$(mktemp "$@")\nkill -TERM 0\necho "$made"\n`;
      writeFileSync(path.join(signalling, 'mktemp'), script, { mode: 0o755 });
      const child = spawn('/bin/sh', ['-c', RECEIVE, 'sh', 'file', `${target}/x`, 'x', '644', '0'], {
        env: { PATH: `${signalling}:${process.env.PATH}` },
        // A process group of its own.
        detached: true,
      });
      const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
      t.same([code, signal], [1, null], 'it was signalled');
      t.strictSame(readdirSync(target).sort(), ['a', 'kept']);
    };
    // BusyBox's sh runs its own mktemp, whatever PATH says.
    if (kind === 'of this machine')
      await t.test('a signal while its directory is made leaves nothing behind', signalled);

    await t.test('.. leads back to where a directory was found, not to where it was moved', async (t) => {
      const { root, target, outside } = placesOf(t);
      const programsThatMove = path.join(root, 'programs');
      mkdirSync(programsThatMove);
      const [stat = ''] = spawnSync('/bin/sh', ['-c', 'command -v stat'], {
        env: { PATH: programs ?? process.env.PATH },
      })
        .stdout.toString()
        .split('\n');
      // While RECEIVE is in target/a, it is moved.
      const moving = `#!/bin/sh
case $(pwd -P) in */target/a) mv '${target}/a' '${outside}/a' ;; esac
exec ${stat} "$@"
`;
      writeFileSync(path.join(programsThatMove, 'stat'), moving, { mode: 0o755 });
      const PATH = `${programsThatMove}:${programs ?? process.env.PATH}`;
      const child = spawn('/bin/sh', ['-c', RECEIVE, 'sh', 'file', `${target}/a/../x`, 'x', '644', '0'], {
        env: { PATH },
      });
      child.stdin.end();
      await once(child, 'close');
      t.strictSame(readdirSync(outside), ['a']);
      t.strictSame(readdirSync(target).sort(), ['kept', 'x']);
    });

    await t.test('a full file system changes nothing and is named', { skip: !isRoot }, async (t) => {
      const { source, target } = placesOf(t);
      const small = path.join(target, 'small');
      mkdirSync(small);
      if (spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'none', small]).status !== 0)
        return t.comment('mounts are not permitted');
      const unmount = () => spawnSync('umount', ['--lazy', small]);
      t.teardown(unmount);
      const content = 'x'.repeat(100_000);
      writeFileSync(path.join(source, 'big'), content);
      t.match(await receiveFile(path.join(small, 'f'), content), { code: 1, said: /No space left/ });
      t.match(await receiveTree(source, small), { code: 1, said: /was not changed: .*No space left/ });
      t.strictSame(readdirSync(small), []);
      await t.test('and one that is mounted in the target is not crossed', async (t) => {
        mkdirSync(path.join(source, 'small'));
        writeFileSync(path.join(source, 'small/f'), 'f');
        const said = /target\/small is on another file system; copy into it by itself. Nothing was changed\n$/;
        t.match(await receiveTree(source, target), { code: 1, said });
        t.strictSame(readdirSync(target).sort(), ['a', 'kept', 'small']);
        t.strictSame(await receiveTree(path.join(source, 'small'), small), done);
        t.strictSame(readdirSync(small), ['f']);
      });
      unmount();
    });
  });

t.test('owners are not copied', { skip: !isRoot }, async (t) => {
  const root = t.testdir({ source: { file: '' } });
  chownSync(path.join(root, 'source/file'), OTHER, OTHER);
  const archive = await buffer(Readable.from(packTree(path.join(root, 'source'))));
  t.match(await run(undefined, RECEIVE, ['tree', path.join(root, 'target'), '', '', ''], archive), { code: 0 });
  t.equal(statSync(path.join(root, 'target/file')).uid, 0);
});

t.test('a machine without tar says so', async (t) => {
  const programs = t.testdir();
  const others = 'cat chmod find id mkdir mktemp mv readlink rm rmdir sh stat wc';
  for (const name of others.split(' ')) {
    const [file = ''] = spawnSync('sh', ['-c', `command -v ${name}`])
      .stdout.toString()
      .split('\n');
    symlinkSync(file, path.join(programs, name));
  }
  t.match(await run(programs, SEND_TREE, ['/etc'], Buffer.alloc(0)), { code: 1, said: /no program tar/ });
  const received = await run(programs, RECEIVE, ['tree', path.join(programs, 'x'), '', '', ''], Buffer.alloc(0));
  t.match(received, { code: 1, said: /no program tar/ });
  t.notOk(existsSync(path.join(programs, 'x')));
});

t.test('what changes while it is read is sent, and told', async (t) => {
  if (!spawnSync('tar', ['--version']).stdout.toString().includes('GNU')) return t.comment('tar is not that of GNU');
  const file = path.join(t.testdir({ big: 'x'.repeat(1_000_000) }), 'big');
  const child = spawn('/bin/sh', ['-c', SEND_TREE, 'sh', path.dirname(file)], { stdio: ['ignore', 'pipe', 'pipe'] });
  const said = text(child.stderr);
  const exited = new Promise((resolve) => child.once('close', resolve));
  // Now tar waits for its reader, in the middle of the file.
  await once(child.stdout, 'readable');
  appendFileSync(file, 'more');
  t.ok((await buffer(child.stdout)).length > 1_000_000);
  t.equal(await exited, SENT_CHANGED);
  t.match(await said, /big: file changed as we read it/);
});

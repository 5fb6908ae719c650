/** `cnapi cp` against real instances and a real agent, whose server is this machine. */
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { startZone } from '../../support/fleet-harness.ts';
import { until } from '../../support/until.ts';
import { Cli } from '../rig.ts';

t.test('files and directories are copied in both directions', async (t) => {
  const zone = await startZone(t, { instances: 2, agents: 1, simulated: 0 });
  const cli = new Cli(
    t,
    zone.instances.map(({ url }) => url),
  );
  const server = zone.agents[0]?.serverUuid ?? '';
  const here = path.join(zone.directory, 'here');
  const there = path.join(zone.directory, 'there');
  mkdirSync(here);
  mkdirSync(there);
  const cp = (...args: string[]) => cli.start(['cp', ...args]).ended;
  const on = (place: string) => `${server}:${place}`;
  const big = randomBytes(3_000_000);

  await t.test('a file arrives whole, with its mode, under its name or another one', async (t) => {
    const names = ['plain', 'with space', "with 'quotes' $(id)", '-dash', 'a:colon'];
    for (const name of names) {
      const source = path.join(here, name);
      writeFileSync(source, name === 'plain' ? big : name);
      chmodSync(source, 0o750);
      t.same(await cp(source, on(`${there}/`)), { code: 0, stdout: '', stderr: '' }, name);
      t.same(await cp(on(path.join(there, name)), path.join(here, 'back')), { code: 0, stdout: '', stderr: '' }, name);
      t.same(readFileSync(path.join(here, 'back')), readFileSync(source), name);
      t.equal(statSync(path.join(here, 'back')).mode & 0o777, 0o750);
    }
    t.same(await cp(path.join(here, 'plain'), on(path.join(there, 'new', 'folder/'))), {
      code: 0,
      stdout: '',
      stderr: '',
    });
    t.ok(existsSync(path.join(there, 'new', 'folder', 'plain')), 'a target that ends in / is created');
    writeFileSync(path.join(here, 'empty'), '');
    t.match(await cp(path.join(here, 'empty'), on(path.join(there, 'empty'))), { code: 0 });
    t.equal(statSync(path.join(there, 'empty')).size, 0);
    t.match(await cp(on(path.join(there, 'empty')), here), { code: 0 }, 'into a directory');
  });

  await t.test('a directory is copied with what it holds', async (t) => {
    const tree = path.join(here, 'tree');
    mkdirSync(path.join(tree, 'a/b'), { recursive: true });
    writeFileSync(path.join(tree, 'a/b/file'), big);
    symlinkSync('b/file', path.join(tree, 'a/link'));
    t.same(await cp('-r', tree, on(path.join(there, 'tree'))), { code: 0, stdout: '', stderr: '' });
    t.same(await cp('-r', on(path.join(there, 'tree')), path.join(here, 'tree-back')), {
      code: 0,
      stdout: '',
      stderr: '',
    });
    t.same(readFileSync(path.join(here, 'tree-back/a/link')), big);
  });

  await t.test('what cannot be copied says why, and changes nothing', async (t) => {
    const kept = path.join(there, 'kept');
    writeFileSync(kept, 'kept');
    const refusals: [args: string[], code: number, stderr: RegExp][] = [
      [['x', 'y'], 2, /one of the two paths must be on a server/],
      [[on('/a'), on('/b')], 2, /one of the two paths must be on a server/],
      [[path.join(here, 'none'), on(kept)], 2, /none cannot be read: ENOENT/],
      [[here, on(kept)], 2, /is a directory; give -r/],
      [['-r', path.join(here, 'plain'), on(there)], 2, /is not a directory; leave -r out/],
      [[path.join(here, 'plain'), `${server}:`], 2, /names no path on a server/],
      [[on(path.join(there, 'none')), here], 1, /there is no file .*none/],
      [[on(there), here], 1, /is a directory; copy it with -r/],
      [['-r', on(kept), path.join(here, 'x')], 1, /is not a directory; leave -r out/],
      [[path.join(here, 'plain'), on('/no/such/folder/file')], 1, /no\/such\/folder/],
      [[path.join(here, 'plain'), 'nobody-1:/tmp/x'], 2, /nobody-1/],
    ];
    for (const [args, code, stderr] of refusals) t.match(await cp(...args), { code, stderr }, args.join(' '));
    t.equal(readFileSync(kept, 'utf8'), 'kept');
  });

  await t.test('an error at this end is one line, and changes nothing', async (t) => {
    const tree = path.join(here, 'faulty');
    mkdirSync(tree);
    writeFileSync(path.join(tree, 'first'), 'first');
    const into = path.join(there, 'faulty');
    const pipe = path.join(here, 'pipe');
    spawnSync('mkfifo', [pipe, path.join(tree, 'second')]);
    const failures: [args: string[], code: number, stderr: RegExp][] = [
      [['-r', tree, on(into)], 1, /^cnapi: .*second is not a file, a directory or a symbolic link\n$/],
      [[pipe, on(into)], 2, /^cnapi: .*pipe is neither a file nor a directory\n$/],
      [[on(pipe), path.join(here, 'x')], 1, /^cnapi: .*pipe is neither a file nor a directory\n$/],
      [['-r', on(tree), path.join(here, 'x')], 1, /^cnapi: .*second, which is a named pipe\n$/],
      [[on(path.join(here, 'plain')), path.join(here, 'plain/x')], 1, /^cnapi: .*plain is not a directory\n$/],
      [[on(path.join(here, 'plain')), '/proc/x'], 1, /^cnapi: \S+: (no such file or directory|permission denied)\n$/],
      [[on('/no/\x1b[31m\x07name'), here], 1, /^cnapi: there is no file \/no\/\\x1b\[31m\\x07name\n$/],
      [['-r', path.join(here, 'tree'), on(path.join(here, 'plain'))], 1, /^cnapi: .*plain is not a directory\n$/],
    ];
    for (const [args, code, stderr] of failures) t.match(await cp(...args), { code, stderr }, args.join(' '));
    t.notOk(existsSync(into));
    t.notOk(existsSync(path.join(here, 'x')));
  });

  await t.test('a file that cannot be written to its end is an error at both ends', async (t) => {
    const source = path.join(here, 'plain');
    const target = path.join(here, 'limited');
    const limited = { under: ['prlimit', '--fsize=100000'] };
    const tree = path.join(here, 'tree');
    t.match(await cli.start(['cp', on(source), target], limited).ended, { code: 1, stderr: /file too large\n$/ });
    t.match(await cli.start(['cp', '-r', on(tree), target], limited).ended, { code: 1, stderr: /file too large\n$/ });
    t.notOk(existsSync(target));
    const small = path.join(zone.directory, 'small');
    mkdirSync(small);
    const unmount = () => spawnSync('umount', ['--lazy', small]);
    if (spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'none', small]).status !== 0)
      return void t.comment('mounts are not permitted');
    t.teardown(unmount);
    const full = /^cnapi: .*no space left on device/im;
    for (const args of [
      [source, on(small)],
      [on(source), small],
      ['-r', tree, on(small)],
      ['-r', on(tree), small],
    ])
      t.match(await cp(...args), { code: 1, stderr: full }, args.join(' '));
    t.strictSame(readdirSync(small), []);
    unmount();
  });

  await t.test('a copy that is cut off leaves the old file and nothing beside it', async (t) => {
    const source = path.join(here, 'endless');
    const target = path.join(there, 'replaced');
    writeFileSync(target, 'old');
    writeFileSync(source, Buffer.alloc(400_000_000));
    const running = cli.start(['cp', source, on(target)]);
    const parts = () => readdirSync(there).filter((name) => name.startsWith('.cnapi-cp.'));
    await until(() => parts().length > 0, 'the copy to begin');
    running.child.kill('SIGKILL');
    await until(() => parts().length === 0, 'the server to remove what had arrived');
    t.equal(readFileSync(target, 'utf8'), 'old');
    const back = path.join(here, 'back-again');
    mkdirSync(back);
    for (const args of [
      [on(source), back],
      ['-r', on(here), back],
    ]) {
      const received = cli.start(['cp', ...args]);
      await until(() => readdirSync(back).length > 0, 'the copy to begin');
      received.child.kill('SIGINT');
      t.strictSame(await received.ended, { code: 130, stdout: '', stderr: '' });
      t.strictSame(readdirSync(back), []);
    }
  });
});

/** `cnapi cp` against real instances and a real agent, whose server is this machine. */
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
  const zone = await startZone(t, { instances: 2, agents: 1 });
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
      [[path.join(here, 'plain'), `${server}:`], 2, /names no path on the server/],
      [[on(path.join(there, 'none')), here], 1, /there is no file .*none/],
      [[on(there), here], 1, /is a directory; copy it with -r/],
      [['-r', on(kept), path.join(here, 'x')], 1, /is not a directory; leave -r out/],
      [[path.join(here, 'plain'), on('/no/such/folder/file')], 1, /no\/such\/folder/],
      [[path.join(here, 'plain'), 'nobody-1:/tmp/x'], 2, /nobody-1/],
    ];
    for (const [args, code, stderr] of refusals) t.match(await cp(...args), { code, stderr }, args.join(' '));
    t.equal(readFileSync(kept, 'utf8'), 'kept');
  });

  await t.test('a copy that is cut off leaves the old file and nothing beside it', async (t) => {
    const source = path.join(here, 'endless');
    const target = path.join(there, 'replaced');
    writeFileSync(target, 'old');
    writeFileSync(source, Buffer.alloc(400_000_000));
    const running = cli.start(['cp', source, on(target)]);
    const parts = () => readdirSync(there).filter((name) => name.endsWith('.cnapi-part'));
    await until(() => parts().length > 0, 'the copy to begin');
    running.child.kill('SIGKILL');
    await until(() => parts().length === 0, 'the server to remove the part');
    t.equal(readFileSync(target, 'utf8'), 'old');
  });
});

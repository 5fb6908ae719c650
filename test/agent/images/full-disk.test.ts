/** Images on a disk that becomes full. */
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readdir, readFile, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { MIB, SMALL, storeIn } from '../../support/image-store.ts';
import { cannotMount, smallDisk } from '../../support/mounted-folder.ts';

const needs = { skip: cannotMount() };
const run = promisify(execFile);
/** More than the store leaves to others. */
const DISK_BYTES = 300 * MIB;

async function storeOnDisk(t: Test) {
  const disk = await smallDisk(t, DISK_BYTES);
  const resize = (bytes: number) => run('mount', ['-o', `remount,size=${bytes}`, disk]);
  return {
    ...(await storeIn(t, disk)),
    /** No byte is free. */
    async fill() {
      const { blocks, bfree, bsize } = await statfs(disk);
      await resize((blocks - bfree) * bsize);
    },
    free: () => resize(DISK_BYTES),
  };
}

t.test('on a full disk an image can be deleted', needs, async (t) => {
  const { images, file, fill, layers, records, again } = await storeOnDisk(t);
  const uuid = randomUUID();
  await images.ensure({ uuid, url: await file('one', SMALL) });
  await fill();
  await images.delete(uuid);
  t.same([images.list(), await layers(), await readdir(records)], [[], [], []]);
  await images.stop();
  t.same((await again()).list(), []);
});

t.test('a load that the full disk ends has failed, and the image can be loaded again or deleted', needs, async (t) => {
  const { images, file, fill, free } = await storeOnDisk(t);
  const uuid = randomUUID();
  const filling = Readable.from(
    (async function* () {
      await fill();
      yield SMALL;
    })(),
  );
  await t.rejects(images.importArchive(filling, { uuid }), { code: 'NoImageSpace' });
  t.match(images.read(uuid).state, { name: 'failed', code: 'NoImageSpace' });
  await free();
  t.equal((await images.ensure({ uuid, url: await file('one', SMALL) })).state.name, 'ready');
  await images.delete(uuid);
  t.same(images.list(), []);
});

t.test('an agent starts on a full disk, and what was loading has failed', needs, async (t) => {
  const { images, fill, again, records } = await storeOnDisk(t);
  const uuid = randomUUID();
  const { promise: begun, resolve } = Promise.withResolvers<void>();
  const never = new Readable({ read: () => resolve() });
  const loading = t.rejects(images.importArchive(never, { uuid }));
  await begun;
  await fill();
  const next = await again();
  t.match(JSON.parse(await readFile(join(records, `${uuid}.json`), 'utf8')), { state: { name: 'fetching' } });
  t.equal(next.read(uuid).state.name, 'failed');
  await next.delete(uuid);
  t.same([next.list(), await readdir(records)], [[], []]);
  never.destroy(new Error('given up'));
  await loading;
});

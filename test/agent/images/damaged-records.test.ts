/**
 * Images whose records cannot be read, and layers that containers have without a record of an
 * image.
 */
import { randomUUID } from 'node:crypto';
import { readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { contentsOf, OTHER, SMALL, store } from '../../support/image-store.ts';
import { cannotMount } from '../../support/mounted-folder.ts';
import { ociArchiveOf, sha256 } from '../../support/oci-archive.ts';

const needs = { skip: cannotMount() };

/** An image that a container uses. */
async function usedImage(t: Test) {
  const used: string[] = [];
  const unreadable: string[] = [];
  const all = await store(t, { used, unreadable });
  const uuid = randomUUID();
  const url = await all.file('one', ociArchiveOf({ layers: [SMALL] }));
  await all.images.ensure({ uuid, url });
  await all.images.use(uuid, 'vm-1');
  const [layer = ''] = (await all.images.get(uuid))?.layers ?? [];
  const inode = async () => (await stat(join(layer, 'root'))).ino;
  await all.images.stop();
  return { ...all, uuid, url, layer, used, unreadable, inode, record: join(all.records, `${uuid}.json`) };
}

const damages: [string, (record: string) => Promise<void>][] = [
  [
    'of a newer agent',
    async (one) => writeFile(one, (await readFile(one, 'utf8')).replace(/"version":1/, '"version":2')),
  ],
  ['torn', async (one) => writeFile(one, (await readFile(one, 'utf8')).slice(0, 40))],
];

for (const [name, damage] of damages)
  t.test(`no layer is removed while a record is ${name}`, needs, async (t) => {
    const { again, layers, file, record, inode } = await usedImage(t);
    await damage(record);
    const before = await inode();
    const next = await again();
    await t.rejects(next.ensure({ uuid: randomUUID(), url: await file('bad', Buffer.from('no archive')) }), {
      code: 'InvalidImage',
    });
    const other = randomUUID();
    await next.ensure({ uuid: other, url: await file('two', ociArchiveOf({ layers: [SMALL, OTHER] })) });
    await next.delete(other);
    t.ok((await layers()).includes(sha256(SMALL)));
    t.equal(await inode(), before, 'the directory was not replaced by that of an image with the same layer');
  });

t.test('an image whose record cannot be read is busy until the record is repaired', needs, async (t) => {
  const { again, layers, uuid, url, record, inode } = await usedImage(t);
  const right = await readFile(record, 'utf8');
  await writeFile(record, right.slice(0, 40));
  const before = await inode();
  const next = await again();
  const busy = { code: 'ImageBusy', message: /its record cannot be read/ };
  await t.rejects(next.ensure({ uuid, url }), busy);
  await t.rejects(next.add(uuid, {}, contentsOf(SMALL)), busy);
  await t.rejects(next.delete(uuid), busy);
  await t.rejects(next.use(uuid, 'vm-2'), busy);
  await t.rejects(next.get(uuid), busy);
  await next.removeUnused(-1);
  t.same([await inode(), await layers()], [before, [sha256(SMALL)]]);
  await next.stop();
  await writeFile(record, right);
  t.equal((await again()).read(uuid).state.name, 'ready');
});

t.test('a layer that a container has stays, also when no image has it', needs, async (t) => {
  const { again, layers, uuid, url, layer, used, record, inode } = await usedImage(t);
  used.push(layer);
  await rm(record);
  const before = await inode();
  const next = await again();
  t.same(await layers(), [sha256(SMALL)]);
  const { layers: loaded } = await next.ensure({ uuid, url });
  t.equal(await inode(), before, 'an image that is loaded again takes the layer that is there');
  t.ok(loaded.every(({ bytes }) => bytes > 0));
  await next.delete(uuid);
  t.same(await layers(), [sha256(SMALL)]);
  used.length = 0;
  await next.stop();
  await again();
  t.same(await layers(), []);
});

t.test('no layer is removed or replaced while the record of a container cannot be read', needs, async (t) => {
  const { again, layers, uuid, url, layer, unreadable, inode } = await usedImage(t);
  unreadable.push('vm-1');
  const next = await again();
  const before = await inode();
  await next.release('vm-1');
  await next.delete(uuid);
  t.same(await layers(), [sha256(SMALL)]);
  await next.ensure({ uuid, url });
  t.equal(await inode(), before, 'an image that is loaded again takes the layer that is there');
  const made = randomUUID();
  await next.add(made, {}, contentsOf(OTHER));
  const [own = ''] = (await next.get(made))?.layers ?? [];
  await next.delete(made);
  await t.rejects(next.add(made, {}, contentsOf(SMALL)), { code: 'ImageBusy', message: /container/ });
  t.same(await readFile(join(own, 'contents')), OTHER);
  await next.delete(uuid);
  await next.stop();
  unreadable.length = 0;
  await again();
  t.same(await layers(), [], `${layer} and ${own} are removed by the next agent that can read all records`);
});

t.test('an image of a VM does not replace a layer that a container has', needs, async (t) => {
  const used: string[] = [];
  const { images, again, records } = await store(t, { used });
  const uuid = randomUUID();
  await images.add(uuid, {}, contentsOf(SMALL));
  used.push(...((await images.get(uuid))?.layers ?? []));
  await images.stop();
  await rm(join(records, `${uuid}.json`));
  await t.rejects((await again()).add(uuid, {}, contentsOf(OTHER)), { code: 'ImageBusy', message: /container/ });
  t.same(await readFile(join(used[0] ?? '', 'contents')), SMALL);
});

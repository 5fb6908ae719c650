/** Small archives that become large: they are refused early, and leave nothing. */
import { randomUUID } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import t from 'tap';
import { MIB, store } from '../../support/image-store.ts';
import { archiveOf, gzipArchiveOf } from '../../support/layer-archive.ts';
import { cannotMount } from '../../support/mounted-folder.ts';
import { ociArchiveOf } from '../../support/oci-archive.ts';

const needs = { skip: cannotMount() };
const zeros = (bytes: number) => ({ path: 'zeros', contents: Buffer.alloc(bytes) });

t.test('a bomb is refused although its bytes would have room', needs, async (t) => {
  const { images, file, layers, arriving } = await store(t, { maxBytes: 1024 * MIB });
  const bomb = gzipArchiveOf([zeros(100 * MIB)]);
  const bombs: readonly [string, Buffer][] = [
    ['a root file system', bomb],
    ['a layer of a layout', ociArchiveOf({ layers: [bomb] })],
    ['a layout', gzipSync(ociArchiveOf({ layers: [archiveOf([zeros(100 * MIB)])] }))],
  ];
  for (const [what, body] of bombs) {
    const uuid = randomUUID();
    const message = /becomes more than 200 times as large when it is decompressed/;
    await t.rejects(images.ensure({ uuid, url: await file(uuid, body) }), { code: 'InvalidImage', message }, what);
    t.same([await layers(), await arriving()], [[], []], what);
  }
});

t.test('a layer may begin with a file of zeros', needs, async (t) => {
  const { images, file } = await store(t, { maxBytes: 1024 * MIB });
  const url = await file('zeros', gzipArchiveOf([zeros(60 * MIB)]));
  t.equal((await images.ensure({ uuid: randomUUID(), url })).state.name, 'ready');
});

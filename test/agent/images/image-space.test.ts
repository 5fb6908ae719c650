/** How loads share the space of images, with real files, archives and unpacked layers. */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { PassThrough, Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { copyTree } from '../../../lib/agent/containers/root/program.ts';
import type { StoredImage } from '../../../lib/agent/images/image.ts';
import { ImageSpace } from '../../../lib/agent/images/image-space.ts';
import { contentsOf, MIB, SMALL, served, store } from '../../support/image-store.ts';
import { archiveOf, gzipArchiveOf } from '../../support/layer-archive.ts';
import { cannotMount, smallDisk } from '../../support/mounted-folder.ts';
import { until } from '../../support/until.ts';

const needs = { skip: cannotMount() };
/** 600,000 bytes that gzip compresses by less than half. */
const LARGE = Buffer.from(Array.from({ length: 600_000 }, (_, at) => (at * at) >> 5));

function image(uuid: string, bytes: number): StoredImage {
  const about = { source: 'stream', config: {}, createdAt: 0, lastUsedAt: 0, usedBy: [] };
  return { uuid, state: { name: 'ready' }, layers: [{ digest: 'a', bytes }], ...about };
}

t.test('what one image holds, no other can have', async (t) => {
  const ready: StoredImage[] = [image('ready', 400)];
  const space = new ImageSpace({ directory: '/', maxBytes: 1_000, list: () => ready });
  space.hold('one', 250);
  space.hold('two', 300);
  t.equal(await space.freeBytes(), 50);
  t.equal(await space.freeBytes('two'), 350, 'an image may go on with what it holds');
  t.throws(() => space.hold('one', 301), { code: 'NoImageSpace', message: /image one needs/ });
  t.equal(await space.freeBytes(), 50, 'what is refused is not held');
  space.release('two');
  space.hold('one', 600);
  t.equal(await space.freeBytes(), 0);
  space.keep('one', 100);
  t.equal(await space.freeBytes(), 500);
  ready.push(image('one', 600));
  t.equal(await space.freeBytes(), 500, 'an image counts once while its record already has its layers');
  space.release('one');
  t.equal(await space.freeBytes(), 0);
});

t.test('two archives that arrive concurrently cannot take more than there is together', needs, async (t) => {
  const { images, arriving } = await store(t, { maxBytes: 1_000_000 });
  const [one, two] = [new PassThrough(), new PassThrough()];
  const [first, second] = [randomUUID(), randomUUID()];
  const loading = images.importArchive(one, { uuid: first });
  const refused = t.rejects(images.importArchive(two, { uuid: second }), { code: 'NoImageSpace' });
  await until(async () => (await arriving()).length === 2, 'both to begin');
  const body = archiveOf([{ path: 'a', contents: LARGE }]);
  const rest = body.subarray(500_000);
  one.write(body.subarray(0, 500_000));
  await until(async () => one.readableLength === 0, 'the first half to be read');
  two.write(body.subarray(0, 400_000));
  two.end(rest);
  await refused;
  t.same(await arriving(), [first], 'nothing of the refused one is left');
  one.end(rest);
  t.equal((await loading).state.name, 'ready', 'the other one goes on');
});

t.test('layers that are unpacked count while another image arrives', needs, async (t) => {
  const { images, layers, arriving } = await store(t, { maxBytes: 1_000_000 });
  const stream = new PassThrough();
  const uuid = randomUUID();
  const waiting = images.importArchive(stream, { uuid });
  const part = Buffer.alloc(700_000, 'a');
  stream.write(part);
  await until(async () => stream.readableLength === 0 && (await arriving()).length === 1, 'a part to arrive');
  const zeros = gzipArchiveOf([{ path: 'zeros', contents: Buffer.alloc(600_000) }]);
  const sent = new PassThrough();
  sent.end(zeros);
  await t.rejects(images.importArchive(sent, { uuid: randomUUID() }), { code: /NoImageSpace|InvalidImage/ });
  t.same(await layers(), []);
  stream.end();
  await t.rejects(waiting, { code: 'InvalidImage' });
});

t.test('a part that is kept for a later attempt still counts, also for the next agent', needs, async (t) => {
  const body = archiveOf([{ path: 'a', contents: LARGE }]);
  const { images, server, again } = await served(t, body, { maxBytes: 1_000_000 });
  server.served.cutAfter = 120_000;
  const request = { uuid: randomUUID(), url: server.url };
  await t.rejects(images.ensure(request), { code: 'ImageSourceFailed' });
  const sent = () => PassThrough.from([archiveOf([{ path: 'b', contents: LARGE }])]);
  await t.rejects(images.importArchive(sent(), { uuid: randomUUID() }), { code: 'InvalidImage', message: /more than/ });
  await images.stop();
  const next = await again();
  await t.rejects(next.importArchive(sent(), { uuid: randomUUID() }), { code: 'InvalidImage', message: /more than/ });
  delete server.served.cutAfter;
  t.equal((await next.ensure(request)).state.name, 'ready', 'its own later attempt has that space');
  await next.delete(request.uuid);
  t.equal((await next.importArchive(sent(), { uuid: randomUUID() })).state.name, 'ready');
});

t.test('an image of a VM that does not fit is refused, and nothing of it is left', needs, async (t) => {
  const { images, layers } = await store(t, { maxBytes: 500_000 });
  const contents = contentsOf(LARGE);
  await t.rejects(images.add(randomUUID(), {}, contents), { code: 'NoImageSpace' });
  t.equal(contents.writes, 0, 'nothing is written before there is space');
  t.same([images.list(), await layers()], [[], []]);
  t.equal((await images.importArchive(PassThrough.from([SMALL]), { uuid: randomUUID() })).state.name, 'ready');
});

t.test('what an image of a VM needs is reserved while it is written', needs, async (t) => {
  const { images } = await store(t, { maxBytes: 1_000_000 });
  const sent = () => PassThrough.from([archiveOf([{ path: 'b', contents: LARGE }])]);
  let refused: Promise<unknown> | undefined;
  const write = async () => {
    const archive = sent();
    refused = t.rejects(images.importArchive(archive, { uuid: randomUUID() }), { code: 'InvalidImage' });
    // It is given up while it arrives.
    await once(archive, 'close');
    throw new Error('given up');
  };
  await t.rejects(images.add(randomUUID(), {}, { ...contentsOf(LARGE), write }), /given up/);
  await refused;
  t.equal((await images.importArchive(sent(), { uuid: randomUUID() })).state.name, 'ready');
});

t.test(
  'a copy that fills the disk fails as one that has no room, and nothing of the image is left',
  needs,
  async (t) => {
    const { images, layers, file } = await store(t);
    const large = fileURLToPath(new URL('.', await file('large', Buffer.alloc(2 * MIB))));
    const disk = await smallDisk(t, MIB);
    const write = () => copyTree(large, disk);
    const made = images.add(randomUUID(), {}, { ...contentsOf(SMALL), write });
    await t.rejects(made, { code: 'NoImageSpace', message: /disk has no room/ });
    t.same([images.list(), await layers()], [[], []]);
  },
);

t.test('an image that was made from a VM goes by a delete only', needs, async (t) => {
  const { images, file, again } = await store(t, { maxBytes: 1_000_000 });
  const made = randomUUID();
  await images.add(made, {}, contentsOf(LARGE));
  await images.removeUnused(-1);
  await t.rejects(
    images.ensure({ uuid: randomUUID(), url: await file('large', archiveOf([{ path: 'a', contents: LARGE }])) }),
    {
      code: /NoImageSpace|InvalidImage/,
    },
  );
  t.equal(images.read(made).state.name, 'ready');
  await images.stop();
  const next = await again();
  await next.removeUnused(-1);
  t.equal(next.read(made).state.name, 'ready', 'also with the next agent');
  await next.delete(made);
  t.notOk(next.list().some(({ uuid }) => uuid === made));
});

t.test(
  'an agent that is killed while it makes an image leaves nothing, and the image can be made again',
  needs,
  async (t) => {
    const { images, again, layers } = await store(t);
    const uuid = randomUUID();
    const { promise: filling, resolve } = Promise.withResolvers<void>();
    const { promise: never } = Promise.withResolvers<void>();
    const contents = contentsOf(SMALL);
    const write = async (directory: string) => {
      await contents.write(directory);
      resolve();
      await never;
    };
    void images.add(uuid, {}, { ...contents, write });
    await filling;
    const next = await again();
    t.same([next.list(), await layers()], [[], []]);
    await next.add(uuid, {}, contentsOf(SMALL));
    t.equal(next.read(uuid).state.name, 'ready');
  },
);

t.test('a source that is not allowed makes no room: no image is removed for it', needs, async (t) => {
  const { images } = await store(t, { maxBytes: 660_000 });
  const unused = randomUUID();
  await images.importArchive(Readable.from([archiveOf([{ path: 'a', contents: LARGE }])]), { uuid: unused });
  for (const url of ['https://elsewhere.example/one', 'file:///etc/passwd'])
    await t.rejects(images.ensure({ uuid: randomUUID(), url }), { code: 'ImageSourceNotAllowed' });
  t.equal(images.read(unused).state.name, 'ready');
});

/** The store of images with real files, real archives and a real HTTP server. */
import { randomUUID } from 'node:crypto';
import { mkdir, readFile, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import t from 'tap';
import { busyboxLayer, upperLayer } from '../../support/busybox-layer.ts';
import { imageServer } from '../../support/image-server.ts';
import { contentsOf, MIB, OTHER, SMALL, served, store, storeIn } from '../../support/image-store.ts';
import { archiveOf, gzipArchiveOf } from '../../support/layer-archive.ts';
import { cannotMount, smallDisk } from '../../support/mounted-folder.ts';
import { ociArchiveOf, sha256, type TestImage } from '../../support/oci-archive.ts';
import { recordingLogger } from '../../support/recording-logger.ts';
import { until } from '../../support/until.ts';

const needs = { skip: cannotMount('busybox') };

t.test('a plain root file system becomes an image of one layer', needs, async (t) => {
  const { images, file, layers, arriving } = await store(t);
  const layer = await busyboxLayer();
  const uuid = randomUUID();
  const image = await images.ensure({
    uuid,
    url: await file('busybox.tar.gz', layer),
    digest: `sha256:${sha256(layer)}`,
  });
  t.equal(image.state.name, 'ready');
  t.same(await layers(), [sha256(layer)]);
  const [directory = ''] = (await images.get(uuid))?.layers ?? [];
  t.equal(await readFile(join(directory, 'root/etc/motd'), 'utf8'), 'lower\n');
  t.same(await arriving(), [], 'the archive is not kept');
});

t.test('an OCI layout has its layers in order, and its configuration', needs, async (t) => {
  const [lower, upper] = [await busyboxLayer(), upperLayer()];
  const config = { Entrypoint: ['/bin/sh'], Cmd: ['-c', 'id'], Env: ['A=b'], WorkingDir: '/opt', User: 'guest' };
  const { images, server } = await served(t, ociArchiveOf({ layers: [lower, upper], config }));
  const uuid = randomUUID();
  const { layers } = await images.ensure({ uuid, url: server.url });
  t.same(
    layers.map(({ digest }) => digest),
    [`sha256:${sha256(lower)}`, `sha256:${sha256(upper)}`],
  );
  t.same((await images.get(uuid))?.defaults, config);
});

t.test('images share layers, and a layer stays while one of them has it', needs, async (t) => {
  const { images, file, layers } = await store(t);
  const [one, two] = [randomUUID(), randomUUID()];
  await images.ensure({ uuid: one, url: await file('one', ociArchiveOf({ layers: [SMALL] })) });
  await images.ensure({ uuid: two, url: await file('two', ociArchiveOf({ layers: [SMALL, OTHER] })) });
  t.same((await layers()).sort(), [sha256(SMALL), sha256(OTHER)].sort());
  await images.delete(two);
  t.same(await layers(), [sha256(SMALL)]);
  await images.delete(one);
  t.same(await layers(), []);
  t.same(images.list(), []);
});

t.test('two callers that want one image at the same time cause one download', needs, async (t) => {
  const { images, server } = await served(t, SMALL);
  const request = { uuid: randomUUID(), url: server.url };
  const [one, two] = await Promise.all([images.ensure(request), images.ensure(request)]);
  t.same(one, two);
  t.same(server.asked, ['whole']);
  await images.ensure(request);
  t.equal(server.asked.length, 1, 'what is there is not downloaded again');
});

t.test('a download that is cut continues where it ended', needs, async (t) => {
  const body = ociArchiveOf({ layers: [SMALL, OTHER] });
  const { images, server } = await served(t, body);
  server.served.cutAfter = Math.ceil(body.length / 3);
  const image = await images.ensure({ uuid: randomUUID(), url: server.url, digest: `sha256:${sha256(body)}` });
  t.equal(image.state.name, 'ready');
  t.equal(server.asked[0], 'whole');
  t.ok(server.asked.length > 1);
  t.ok(
    server.asked.slice(1).every((range) => /^bytes=[1-9]\d*-$/.test(range)),
    server.asked.join(' '),
  );
});

t.test('a download of something that has changed meanwhile begins anew', needs, async (t) => {
  const { images, server } = await served(t, archiveOf([{ path: 'a', contents: Buffer.alloc(100_000) }]));
  server.served.answer = (_request, response) => {
    const { body } = server.served;
    server.served = { body: SMALL, etag: '"two"' };
    response.writeHead(200, { etag: '"one"', 'content-length': body.length });
    response.write(body.subarray(0, 50_000), () => response.destroy());
  };
  const image = await images.ensure({ uuid: randomUUID(), url: server.url });
  t.equal(image.digest, `sha256:${sha256(SMALL)}`);
});

t.test('a source that never gives all of it fails with a code; the next agent continues', needs, async (t) => {
  const body = ociArchiveOf({ layers: [SMALL, OTHER] });
  const { images, server, again, arriving } = await served(t, body);
  server.served.cutAfter = 1_000;
  const request = { uuid: randomUUID(), url: server.url };
  await t.rejects(images.ensure(request), { code: 'ImageSourceFailed', message: /after 5 attempts/ });
  t.match(images.read(request.uuid), { state: { name: 'failed', code: 'ImageSourceFailed' } });
  t.same((await arriving()).sort(), [request.uuid, `${request.uuid}.json`].sort(), 'what has arrived is kept');
  await images.stop();
  delete server.served.cutAfter;
  server.asked.length = 0;
  const image = await (await again()).ensure(request);
  t.equal(image.digest, `sha256:${sha256(body)}`);
  t.same(server.asked, ['bytes=5000-']);
});

t.test('an answer that is longer than it may be, or an error, is refused', needs, async (t) => {
  const server = await imageServer(t, { body: Buffer.alloc(2 * MIB) });
  const { images, arriving } = await store(t, { urls: [server.url], maxBytes: MIB });
  await t.rejects(images.ensure({ uuid: randomUUID(), url: server.url }), {
    code: 'InvalidImage',
    message: /more than/,
  });
  server.served.answer = (_request, response) => {
    response.writeHead(200);
    for (let n = 0; n < 20; n++) response.write(Buffer.alloc(128 * 1024));
    response.end();
  };
  await t.rejects(images.ensure({ uuid: randomUUID(), url: server.url }), {
    code: 'InvalidImage',
    message: /more than/,
  });
  server.served.answer = (_request, response) => {
    response.writeHead(404);
    response.end();
  };
  await t.rejects(images.ensure({ uuid: randomUUID(), url: server.url }), { message: /answered 404/ });
  t.same((await arriving()).filter((name) => !name.endsWith('.json')).length, 1, 'only an empty part of the last');
});

t.test('only what the configuration allows is a source', needs, async (t) => {
  const { images, server, file } = await served(t, SMALL);
  const refused = (url: string, message: RegExp) =>
    t.rejects(images.ensure({ uuid: randomUUID(), url }), { code: 'ImageSourceNotAllowed', message }, url);
  const { origin } = new URL(server.url);
  await refused(`${origin}/other/one`, /not allowed/);
  await refused(`${origin}/imagesone`, /not allowed/);
  await refused(`${origin}/images/..%2fother`, /not allowed/);
  await refused(`${origin}/images/../other`, /not allowed/);
  await refused(server.url.replace('127.0.0.1', 'localhost'), /not allowed/);
  await refused(server.url.replace('http://', 'http://user:word@'), /user or a password/);
  await refused('ftp://127.0.0.1/images/one', /cannot be a source/);
  await refused('one', /not a URL/);
  await refused('file:///etc/passwd', /not allowed/);
  await refused('file:///etc/no-such-file', /not allowed/);
  const inside = await file('inside', SMALL);
  await symlink('/etc/passwd', `${new URL(inside).pathname}-link`);
  await refused(`${inside}-link`, /not allowed/);
  t.same(server.asked, [], 'nothing was asked for');
  server.served.answer = (_request, response) => {
    response.writeHead(302, { location: `${origin}/other` });
    response.end();
  };
  await refused(server.url, /not allowed/);
  t.equal(server.asked.length, 1);
});

t.test('redirects to allowed places are followed, a bounded number of them', needs, async (t) => {
  const { images, server } = await served(t, SMALL);
  server.served.answer = (_request, response) => {
    delete server.served.answer;
    response.writeHead(307, { location: 'two?secret=1' });
    response.end();
  };
  t.equal((await images.ensure({ uuid: randomUUID(), url: server.url })).state.name, 'ready');
  server.served.answer = (_request, response) => {
    response.writeHead(302, { location: server.url });
    response.end();
  };
  await t.rejects(images.ensure({ uuid: randomUUID(), url: server.url }), { message: /redirects more than 5 times/ });
});

const WRONG: readonly [string, TestImage | Buffer, RegExp][] = [
  ['a layer leaves its root', { layers: [gzipArchiveOf([{ path: '../out', contents: 'x' }])] }, /has a "\.\."/],
  ['a layer has an absolute path', { layers: [gzipArchiveOf([{ path: '/out', contents: 'x' }])] }, /absolute path/],
  ['a layer has a device', { layers: [gzipArchiveOf([{ path: 'sda', type: 'BlockDevice' }])] }, /device file/],
  ['it is for another processor', { layers: [SMALL], architecture: 'riscv64' }, /it is for linux on riscv64/],
  ['a layer has an unknown type', { layers: [SMALL], layerType: 'application/zstd' }, /tar, plain or with gzip/],
  ['a blob is missing', spoilt((all) => all.filter(({ path }) => !path.endsWith(sha256(SMALL)))), /is missing/],
  ['a blob has another digest', spoilt((all) => all.map(changed)), /has the digest/],
  ['a blob is there twice', spoilt((all) => [...all, ...all.filter(isBlob)]), /is there twice/],
  [
    'a blob is a link',
    spoilt((all) => [...all, { path: 'blobs/x', type: 'SymbolicLink', target: '/etc' }]),
    /not a file/,
  ],
  ['it has no index', spoilt((all) => all.filter(({ path }) => path !== 'index.json')), /no index\.json/],
  ['its index is not JSON', spoilt((all) => all.map(withIndex('{'))), /is not JSON/],
  ['its index is empty', spoilt((all) => all.map(withIndex('{"schemaVersion":2,"manifests":[]}'))), /no image for/],
  ['it is not an archive', Buffer.from('no archive at all'), /cut off/],
  ['it is empty', Buffer.alloc(0), /cut off/],
  ['it is a bomb', gzipArchiveOf([{ path: 'zeros', contents: Buffer.alloc(80 * MIB) }]), /more than/],
];

type Entry = Parameters<typeof archiveOf>[0][number];

function spoilt(spoil: (entries: Entry[]) => Entry[]): TestImage {
  return { layers: [SMALL], spoil };
}

function isBlob({ path }: Entry): boolean {
  return path.endsWith(sha256(SMALL));
}

function changed(entry: Entry): Entry {
  return isBlob(entry) ? { ...entry, contents: OTHER } : entry;
}

function withIndex(contents: string): (entry: Entry) => Entry {
  return (entry) => (entry.path === 'index.json' ? { ...entry, contents } : entry);
}

t.test('what is wrong is refused as a whole, and nothing of it is left', needs, async (t) => {
  const { images, file, layers, arriving } = await store(t);
  for (const [what, image, message] of WRONG) {
    const body = Buffer.isBuffer(image) ? image : ociArchiveOf(image);
    const uuid = randomUUID();
    const url = await file(uuid, body);
    await t.rejects(images.ensure({ uuid, url }), { code: 'InvalidImage', message }, what);
    t.match(images.read(uuid).state, { name: 'failed', code: 'InvalidImage' }, what);
    t.same([await layers(), await arriving()], [[], []], what);
    await images.delete(uuid);
  }
  const uuid = randomUUID();
  const wrong = { uuid, url: await file('small', SMALL), digest: `sha256:${sha256(OTHER)}` };
  await t.rejects(images.ensure(wrong), { code: 'InvalidImage', message: /has the digest/ });
  const right = await images.ensure({ ...wrong, digest: `sha256:${sha256(SMALL)}` });
  t.equal(right.state.name, 'ready', 'a right one may follow');
  await t.rejects(images.ensure(wrong), { code: 'ImageExists', message: /with another digest; delete it first/ });
  await t.rejects(images.ensure({ ...wrong, uuid: '../x' }), { code: 'InvalidImage', message: /uuid/ });
  await t.rejects(images.ensure({ ...wrong, digest: 'md5:1' }), { code: 'InvalidImage', message: /digest/ });
});

t.test('many containers begin and end to use an image at the same time', needs, async (t) => {
  const { images, file } = await store(t);
  const uuid = randomUUID();
  await images.ensure({ uuid, url: await file('one', SMALL) });
  const users = Array.from({ length: 20 }, (_, n) => `container-${n}`);
  await Promise.all(users.map((user) => images.use(uuid, user)));
  t.equal(images.read(uuid).usedBy.length, users.length);
  const deleting = t.rejects(images.delete(uuid), { code: 'ImageInUse' });
  await Promise.all([...users.slice(1).map((user) => images.release(user)), deleting]);
  t.same(images.read(uuid).usedBy, [users[0]]);
});

t.test('a caller that gives up ends its own wait only', needs, async (t) => {
  const { images, server } = await served(t, SMALL);
  let answer = () => {};
  server.served.answer = (_request, response) => {
    answer = () => response.end(SMALL);
  };
  const request = { uuid: randomUUID(), url: server.url };
  const giving = new AbortController();
  const first = t.rejects(images.ensure(request, { signal: giving.signal }), /given up/);
  const second = images.ensure(request);
  await until(async () => server.asked.length > 0, 'the download to begin');
  giving.abort(new Error('given up'));
  await first;
  answer();
  t.equal((await second).state.name, 'ready');
});

t.test('each change of the state is logged once', needs, async (t) => {
  const records: Record<string, unknown>[] = [];
  const { images, file, again } = await store(t, { log: recordingLogger(records) });
  const changes = () =>
    records
      .splice(0)
      .filter(({ msg }) => / -> /.test(`${msg}`))
      .map(({ msg, image, event, reason }) => ({ msg, image, event, ...(reason ? { reason } : {}) }));
  const uuid = randomUUID();
  await t.rejects(images.ensure({ uuid, url: await file('wrong', Buffer.from('no archive')) }));
  await images.ensure({ uuid, url: await file('right', SMALL) });
  await images.delete(uuid);
  const change = (from: string, to: string, event: string) => ({ msg: `image: ${from} -> ${to}`, image: uuid, event });
  const seen = changes();
  t.match(seen[2]?.reason, /cut off/);
  t.same(
    seen.map(({ reason: _reason, ...rest }) => rest),
    [
      ...[change('absent', 'fetching', 'load'), change('fetching', 'unpacking', 'fetched')],
      ...[change('unpacking', 'failed', 'failed'), change('failed', 'fetching', 'load')],
      ...[change('fetching', 'unpacking', 'fetched'), change('unpacking', 'ready', 'unpacked')],
      ...[change('ready', 'removing', 'remove'), change('removing', 'absent', 'removed')],
    ],
  );
  await images.ensure({ uuid, url: await file('right', SMALL) });
  await images.stop();
  changes();
  await again();
  t.same(changes(), [], 'the next agent changes nothing');
});

t.test('an archive can be sent', needs, async (t) => {
  const { images } = await store(t);
  const uuid = randomUUID();
  const body = ociArchiveOf({ layers: [SMALL] });
  const image = await images.importArchive(Readable.from([body.subarray(0, 700), body.subarray(700)]), { uuid });
  t.match(image, { source: 'stream', digest: `sha256:${sha256(body)}`, state: { name: 'ready' } });
});

t.test(
  'an image that was made here is one layer, and nothing is left of one that could not be made',
  needs,
  async (t) => {
    const { images, layers, again } = await store(t);
    const uuid = randomUUID();
    const failed = images.add(
      uuid,
      {},
      {
        ...contentsOf(SMALL),
        write: async (directory) => {
          await mkdir(directory);
          throw new Error('no root');
        },
      },
    );
    await t.rejects(failed, /no root/);
    t.same([images.list(), await layers()], [[], []]);
    await images.add(uuid, { Cmd: ['sh'], User: null }, contentsOf(SMALL));
    await t.rejects(images.add(uuid, {}, contentsOf(SMALL)), { code: 'ImageExists', message: /choose another uuid/ });
    await images.stop();
    const next = await again();
    t.same((await next.get(uuid))?.defaults, { Cmd: ['sh'] });
    t.equal((await layers()).length, 1);
    await next.delete(uuid);
    t.same(await layers(), []);
  },
);

t.test('an image that a container uses stays; others go when they are unused for long', needs, async (t) => {
  const { images, file, again } = await store(t);
  const [used, unused] = [randomUUID(), randomUUID()];
  await images.ensure({ uuid: used, url: await file('one', SMALL) });
  await images.ensure({ uuid: unused, url: await file('two', OTHER) });
  await images.use(used, 'container-1');
  await images.stop();
  const next = await again();
  await next.release('container-1', used);
  await t.rejects(next.delete(used), { code: 'ImageInUse', message: /container-1/ });
  await next.removeUnused(-1);
  t.same(
    next.list().map(({ uuid }) => uuid),
    [used],
  );
  await next.release('container-1');
  await next.removeUnused(-1);
  t.same(next.list(), []);
  await t.rejects(next.use(used, 'container-2'), { code: 'ImageNotFound' });
});

t.test('an agent that ends in the middle leaves an image that has failed and can be loaded again', needs, async (t) => {
  const body = ociArchiveOf({ layers: [SMALL] });
  const { images, server, again, layers } = await served(t, body);
  server.served.answer = (_request, response) => {
    response.writeHead(200, { etag: '"one"', 'content-length': body.length });
    response.write(body.subarray(0, 2_000));
  };
  const request = { uuid: randomUUID(), url: server.url };
  const loading = t.rejects(images.ensure(request), { code: 'ImageSourceFailed', message: /agent is stopping/ });
  await until(async () => server.asked.length > 0, 'the download to begin');
  await images.stop();
  await loading;
  const next = await again();
  t.equal(next.read(request.uuid).state.name, 'failed');
  t.equal(await next.get(request.uuid), undefined);
  t.same(await layers(), []);
  delete server.served.answer;
  t.equal((await next.ensure(request)).state.name, 'ready');
});

t.test('images that do not fit take the place of unused ones, or are refused', needs, async (t) => {
  const large = (name: string): Buffer => archiveOf([{ path: name, contents: Buffer.alloc(600_000, name) }]);
  const { images, file } = await store(t, { maxBytes: 1_300_000 });
  const [one, two, three] = [randomUUID(), randomUUID(), randomUUID()];
  await images.ensure({ uuid: one, url: await file('one', large('a')) });
  await images.ensure({ uuid: two, url: await file('two', large('b')) });
  await images.ensure({ uuid: three, url: await file('three', large('c')) });
  t.same(
    images
      .list()
      .map(({ uuid }) => uuid)
      .sort(),
    [two, three].sort(),
    'the longest unused one has gone',
  );
  await images.use(two, 'x');
  await images.use(three, 'y');
  await t.rejects(images.ensure({ uuid: one, url: await file('one', large('d')) }), { code: 'InvalidImage' });
  const disk = await smallDisk(t, 8 * MIB);
  const full = await storeIn(t, disk);
  await t.rejects(full.images.ensure({ uuid: one, url: await full.file('one', SMALL) }), { code: 'NoImageSpace' });
});

/** Transfers of images that stall: they end, and another load gets their turn. */
import { randomUUID } from 'node:crypto';
import { PassThrough, Readable } from 'node:stream';
import t from 'tap';
import { STALLED_MS } from '../../../lib/agent/images/archive-file.ts';
import { SMALL, served, store } from '../../support/image-store.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { cannotMount } from '../../support/mounted-folder.ts';
import { until } from '../../support/until.ts';

const needs = { skip: cannotMount() };

t.test('streams that stall end, and the load that waited for them runs', needs, async (t) => {
  const clock = new ManualClock();
  const { images, arriving } = await store(t, { clock });
  const before = clock.timers;
  const streams = [new PassThrough(), new PassThrough()];
  const stalled = streams.map((stream) => {
    stream.write(SMALL.subarray(0, 50));
    const failure = { code: 'ImageSourceFailed', message: /nothing of the archive came for 60 s/ };
    return t.rejects(images.importArchive(stream, { uuid: randomUUID() }), failure);
  });
  const waiting = images.importArchive(Readable.from([SMALL]), { uuid: randomUUID() });
  const bothWait = async () => clock.timers === before + 2 && streams.every((one) => one.readableLength === 0);
  await until(bothWait, 'both to wait for more');
  await clock.advance(STALLED_MS - 1);
  t.notOk(streams.some(({ destroyed }) => destroyed));
  await clock.advance(1);
  await Promise.all(stalled);
  t.equal((await waiting).state.name, 'ready');
  t.ok(streams.every(({ destroyed }) => destroyed));
  t.same(await arriving(), [], 'a stream cannot be continued, so nothing of it is kept');
});

t.test('a stream that is slow, but not silent, is read to its end', needs, async (t) => {
  const clock = new ManualClock();
  const { images } = await store(t, { clock });
  async function* slowly(): AsyncGenerator<Buffer, void> {
    for (let at = 0; at < SMALL.length; at += 50) {
      await clock.advance(STALLED_MS - 1);
      yield SMALL.subarray(at, at + 50);
    }
  }
  t.equal((await images.importArchive(slowly(), { uuid: randomUUID() })).state.name, 'ready');
});

t.test('pieces without a byte do not count as progress', needs, async (t) => {
  const clock = new ManualClock();
  const { images } = await store(t, { clock });
  async function* empty(): AsyncGenerator<Buffer, void> {
    for (;;) {
      await clock.advance(STALLED_MS / 2);
      yield Buffer.alloc(0);
    }
  }
  await t.rejects(images.importArchive(empty(), { uuid: randomUUID() }), { code: 'ImageSourceFailed' });
});

t.test('a download that stalls is given up before its five attempts', needs, async (t) => {
  const clock = new ManualClock();
  const { images, server } = await served(t, SMALL, { clock });
  server.served.answer = () => undefined;
  const request = { uuid: randomUUID(), url: server.url };
  const failure = { code: 'ImageSourceFailed', message: /no answer within 30000 ms, after 2 attempts/ };
  const refused = t.rejects(images.ensure(request), failure);
  await until(async () => server.asked.length === 1, 'the first attempt');
  await clock.advance(30_000);
  const secondAttempt = async () => {
    await clock.advance(1);
    return server.asked.length === 2;
  };
  await until(secondAttempt, 'the second attempt');
  await clock.advance(30_000);
  await refused;
});

t.test('an agent that stops does not wait for a stream that stalls', needs, async (t) => {
  const { images } = await store(t);
  const stream = new PassThrough();
  const refused = t.rejects(images.importArchive(stream, { uuid: randomUUID() }), { message: /agent is stopping/ });
  stream.write(SMALL.subarray(0, 50));
  await until(async () => stream.readableLength === 0, 'a part to arrive');
  await images.stop();
  await refused;
});

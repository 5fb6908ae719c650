import { PassThrough } from 'node:stream';
import t from 'tap';
import { type BodyProgress, collectBody } from '../../../lib/platform/network/collect-body.ts';

const nothing = () => undefined;

t.test('a body of any number of pieces becomes one buffer', async (t) => {
  for (const pieces of [[], ['a'], Array.from({ length: 5_000 }, (_, at) => `${at},`), ['x'.repeat(100_000), 'y']]) {
    const message = new PassThrough();
    const seen: BodyProgress[] = [];
    const collected = collectBody(message, (progress) => seen.push(progress));
    for (const piece of pieces) message.write(piece);
    message.end();
    const text = pieces.join('');
    t.equal((await collected).toString(), text);
    t.same(seen.at(-1), pieces.length === 0 ? undefined : { bytes: text.length, pieces: pieces.length });
  }
});

t.test('no piece is kept, because small ones take far more memory than their bytes', async (t) => {
  const message = new PassThrough();
  const piece = Buffer.from('kept');
  const collected = collectBody(message, nothing);
  message.once('end', () => piece.fill('!'));
  message.end(piece);
  t.equal((await collected).toString(), 'kept');
  t.equal(piece.toString(), '!!!!');
});

t.test('a refused body is not read any further', async (t) => {
  const message = new PassThrough();
  const collected = collectBody(message, ({ pieces }) => {
    if (pieces > 2) throw new Error('three are too many');
  });
  for (const piece of ['1', '2', '3', '4']) message.write(piece);
  await t.rejects(collected, { message: 'three are too many' });
  t.equal(message.listenerCount('data'), 0);
  t.ok(message.isPaused());
  t.doesNotThrow(() => message.emit('error', new Error('reset')), 'a later error is nobody’s');
});

t.test('a body that ends early is an error', async (t) => {
  const message = new PassThrough();
  const collected = collectBody(message, nothing);
  message.write('begun');
  message.destroy();
  await t.rejects(collected, { message: 'the connection was closed' });
  await t.rejects(collectBody(message, nothing), { message: 'the connection was closed' });
});

t.test('a body that nobody needs any more is not waited for', async (t) => {
  const message = new PassThrough();
  const over = new AbortController();
  const collected = collectBody(message, nothing, over.signal);
  message.write('the beginning');
  over.abort();
  await t.rejects(collected, { message: 'the connection was closed' });
  t.equal(message.listenerCount('data'), 0);
  await t.rejects(collectBody(new PassThrough(), nothing, over.signal), { message: 'the connection was closed' });
});

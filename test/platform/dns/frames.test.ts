import fc from 'fast-check';
import t from 'tap';
import { FrameReader, frame } from '../../../lib/platform/dns/frames.ts';

t.test('messages are read as sent, however the stream is split', async () => {
  const messages = fc.array(fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)));
  fc.assert(
    fc.property(messages, fc.integer({ min: 1, max: 700 }), (sent, step) => {
      const stream = Buffer.concat(sent.map(frame));
      const reader = new FrameReader(300);
      const heard: Buffer[] = [];
      for (let at = 0; at < stream.length; at += step)
        heard.push(...(reader.push(stream.subarray(at, at + step)) ?? []));
      return (
        heard.length === sent.length && heard.every((message, index) => message.equals(sent[index] ?? Buffer.alloc(1)))
      );
    }),
  );
});

t.test('a message that is too long is refused by its length field', async (t) => {
  t.equal(new FrameReader(300).push(Buffer.from([1, 45])), undefined);
  t.same(new FrameReader(300).push(Buffer.from([1, 44])), []);
});

import fc from 'fast-check';
import t from 'tap';
import { decodeBusMessage, encodeBusMessage, isTopic, MAX_MESSAGE_BYTES } from '../../../lib/platform/bus/message.ts';

t.test('a message decodes as it was encoded', async () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue()), (message) => {
      const text = encodeBusMessage(message);
      return text === undefined || encodeBusMessage(decodeBusMessage(text) ?? { not: 'decoded' }) === text;
    }),
  );
});

t.test('random text never makes the decoder throw', async () => {
  fc.assert(fc.property(fc.oneof(fc.string(), fc.json()), (text) => void decodeBusMessage(text)));
});

t.test('the limit is in bytes and inclusive', async (t) => {
  const room = MAX_MESSAGE_BYTES - '{"t":""}'.length;
  t.type(encodeBusMessage({ t: 'x'.repeat(room) }), 'string');
  t.equal(encodeBusMessage({ t: 'x'.repeat(room + 1) }), undefined);
  t.equal(encodeBusMessage({ t: 'ü'.repeat(room / 2 + 1) }), undefined);
  t.equal(decodeBusMessage(`{"t":"${'ü'.repeat(room / 2 + 1)}"}`), undefined);
});

t.test('topics are short and plain', async (t) => {
  for (const topic of ['a', 'task:0-9_z', 'x'.repeat(100)]) t.ok(isTopic(topic), topic);
  for (const topic of ['', 'A', 'a b', 'a\n', 'ü', 'a*', 'x'.repeat(101)]) t.notOk(isTopic(topic), topic);
});

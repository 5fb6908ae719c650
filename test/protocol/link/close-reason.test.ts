import t from 'tap';
import { closeReason } from '../../../lib/protocol/link/close-reason.ts';

t.test('a close reason is cut to what a close frame holds, between characters', async (t) => {
  t.equal(closeReason('it is over'), 'it is over');
  t.equal(closeReason('x'.repeat(200)), 'x'.repeat(123));
  t.equal(closeReason('€'.repeat(100)), '€'.repeat(41));
  t.equal(closeReason('€'.repeat(41)), '€'.repeat(41));
  t.ok(Buffer.byteLength(closeReason(`${'x'.repeat(122)}😀`)) <= 123);
});

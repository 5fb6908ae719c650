import t from 'tap';
import { KeptOutput, OutputStreamer } from '../../../lib/agent/output/output.ts';
import { completeLength, continuationLength } from '../../../lib/agent/output/utf8.ts';
import { endComplete, fitEnd, truncateMiddle } from '../../../lib/agent/runner/task-end.ts';
import type { Clock } from '../../../lib/platform/time/clock.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { countJsonValues } from '../../../lib/protocol/json/bounded-json.ts';
import { MAX_OUTPUT_CHUNK, MAX_RESULT_VALUES } from '../../../lib/protocol/limits.ts';
import { encodeFrame, parseAgentFrame } from '../../../lib/protocol/link/codec.ts';

/** A clock whose timers fire on demand. */
function handClock() {
  const due: (() => void)[] = [];
  const clock: Clock = {
    ...systemClock,
    after: (_ms, callback) => {
      due.push(callback);
      return { cancel: () => void due.splice(due.indexOf(callback) >>> 0, 1) };
    },
  };
  return { clock, fire: () => due.splice(0).forEach((callback) => void callback()) };
}

t.test('completeLength and continuationLength find characters that are cut at either end', async (t) => {
  const rows: [string, number[], number, number][] = [
    ['nothing', [], 0, 0],
    ['ASCII', [0x61], 1, 0],
    ['a whole ä', [0xc3, 0xa4], 2, 0],
    ['half an ä', [0x61, 0xc3], 1, 0],
    ['two of three bytes of €', [0x61, 0xe2, 0x82], 1, 0],
    ['three of four bytes of 😀', [0xf0, 0x9f, 0x98], 0, 0],
    ['a whole 😀', [0xf0, 0x9f, 0x98, 0x80], 4, 0],
    ['the rest of a character', [0x98, 0x80, 0x61], 3, 2],
    ['no UTF-8', [0x80, 0x80, 0x80, 0x80, 0x80], 5, 3],
  ];
  for (const [name, bytes, whole, stray] of rows) {
    t.equal(completeLength(Uint8Array.from(bytes)), whole, `${name}: whole`);
    t.equal(continuationLength(Uint8Array.from(bytes)), stray, `${name}: stray`);
  }
});

t.test('output within the bound is kept unchanged, in however many pieces it arrives', async (t) => {
  const kept = new KeptOutput(10);
  for (const byte of Buffer.from('ä€😀b')) kept.add(Buffer.from([byte]));
  t.equal(kept.text(), 'ä€😀b');
});

t.test('longer output keeps its first and last halves and marks the cut, between characters', async (t) => {
  const kept = new KeptOutput(10);
  kept.add(Buffer.from(`1234ä${'€'.repeat(1000)}ä6789`));
  t.equal(kept.text(), '1234\n[… 3004 bytes cut …]\n6789');
  const long = new KeptOutput(1000);
  for (let n = 0; n < 10_000; n++) long.add(Buffer.from(`${n}\n`));
  t.match(long.text(), /^0\n1\n2\n[\s\S]*bytes cut[\s\S]*9998\n9999\n$/);
  t.ok(long.text().length < 1100);
});

t.test('live output arrives in order, in pieces that fit an event, without split characters', async (t) => {
  const { clock, fire } = handClock();
  const pieces: { offset: number; text: string }[] = [];
  const live = new OutputStreamer(clock, (_stream, offset, text) => pieces.push({ offset, text }));
  const text = 'ä€😀'.repeat(4000);
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += 10_007) {
    live.add('stdout', bytes.subarray(at, at + 10_007));
    fire();
  }
  live.end();
  t.equal(pieces.map((piece) => piece.text).join(''), text);
  t.ok(pieces.every((piece) => piece.text.length <= MAX_OUTPUT_CHUNK));
  let offset = 0;
  for (const piece of pieces) {
    t.equal(piece.offset, offset);
    offset += Buffer.byteLength(piece.text);
  }
});

t.test('live output above the rate limit is left out, and the offsets show the gap', async (t) => {
  const { clock, fire } = handClock();
  const pieces: { offset: number; text: string }[] = [];
  const live = new OutputStreamer(clock, (_stream, offset, text) => pieces.push({ offset, text }));
  for (let n = 0; n < 10; n++) live.add('stdout', Buffer.alloc(65_536, 'a'));
  fire();
  live.add('stdout', Buffer.from('end'));
  live.end();
  t.same(pieces.at(-1), { offset: 655_360, text: 'end' });
  t.ok(pieces.reduce((sum, { text }) => sum + text.length, 0) < 70_000);
});

t.test('output that is not UTF-8 still fits into events', async (t) => {
  const { clock } = handClock();
  const pieces: string[] = [];
  const live = new OutputStreamer(clock, (_stream, _offset, text) => pieces.push(text));
  live.add('stderr', Buffer.alloc(60_000, 0xff));
  live.end();
  t.ok(pieces.length > 3 && pieces.every((text) => text.length <= MAX_OUTPUT_CHUNK));
});

t.test("an end is cut to the session's frame limit, measured as JSON", async (t) => {
  const result = { exitCode: 0, stdout: '\0'.repeat(1024 * 1024), stderr: `head${'x'.repeat(500_000)}tail` };
  const end = endComplete({ id: '564d5b45-3a8c-4c1f-9d0a-0123456789ab', attempt: 1 }, result, '');
  for (const max of [8 * 1024 * 1024, 65_536, 2048]) {
    const fitted = fitEnd(end, max);
    t.ok(Buffer.byteLength(encodeFrame(fitted)) <= max, `fits ${max} bytes`);
    t.match(fitted.result, { exitCode: 0 });
  }
  t.match(fitEnd(end, 65_536).result, { stderr: /^head[\s\S]*bytes cut[\s\S]*tail$/ });
  t.equal(fitEnd(end, 100_000_000), end, 'an end that fits is unchanged');
  t.same(fitEnd({ ...end, result: { list: Array(1000).fill('long enough') } }, 2048).result, {
    ...{ truncated: true, message: 'the result was not kept: it was too large' },
  });
  const many = (count: number) => ({ ...end, result: { list: Array(count).fill(0) } });
  const valuesOf = (frame: typeof end) =>
    countJsonValues(encodeFrame(frame), { maxValues: MAX_RESULT_VALUES, maxDepth: 64 });
  const most = MAX_RESULT_VALUES - valuesOf(many(1)) + 1;
  t.same(
    fitEnd(many(most + 1), 1e8).result,
    { truncated: true, message: `the result was not kept: it had more than ${MAX_RESULT_VALUES} values` },
    'one value too many',
  );
  t.ok(parseAgentFrame(encodeFrame(fitEnd(many(most), 1e8))));
  t.match(fitEnd(many(most), 1e8).result, { list: Array }, 'the largest number of values');
  t.equal(truncateMiddle('€€€€', 8), '€\n[… 6 bytes cut …]\n€');
});

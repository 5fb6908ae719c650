import t from 'tap';
import { RateLimiter } from '../../../lib/platform/limiting/rate-limiter.ts';
import { FrameCounter } from '../../../lib/protocol/link/frame-counter.ts';
import {
  BURST_BYTES,
  BYTES_PER_MS,
  FRAME_BYTES,
  LINK_RATE,
  VALUE_BYTES,
} from '../../../lib/protocol/link/link-quota.ts';
import { ReadLimiter } from '../../../lib/protocol/link/read-limiter.ts';
import { ManualClock } from '../../support/manual-clock.ts';

t.test('a burst is read at once, the excess later, and the budget refills over time', async (t) => {
  const limiter = new RateLimiter(LINK_RATE);
  const charge = (cost: number, now: number) => limiter.charge(cost, now);
  t.equal(charge(BURST_BYTES, 0), 0);
  t.equal(charge(10 * BYTES_PER_MS, 0), 10);
  t.equal(charge(BYTES_PER_MS, 20), 0);
  t.equal(charge(BURST_BYTES, 1e9), 0, 'never more than a burst');
  t.equal(charge(BYTES_PER_MS, 1e9), 1);
});

const frame = (first: number, payload: number, isMasked = true) => {
  const length =
    payload < 126
      ? [payload]
      : payload < 65_536
        ? [126, payload >> 8, payload & 255]
        : [127, 0, 0, 0, 0, ...[24, 16, 8, 0].map((shift) => (payload >> shift) & 255)];
  const [short = 0, ...extended] = length;
  return Buffer.concat([
    Buffer.from([first, short | (isMasked ? 0x80 : 0), ...extended, ...(isMasked ? [1, 2, 3, 4] : [])]),
    // Bytes that look like headers of more frames.
    Buffer.alloc(payload, 0x8a),
  ]);
};

t.test('frames are counted wherever the reads split them', async (t) => {
  const frames = [
    frame(0x8a, 0),
    frame(0x81, 45),
    frame(0x01, 126),
    frame(0x00, 0),
    frame(0x80, 70_000),
    frame(0x89, 125, false),
    frame(0x81, 300, false),
    frame(0x8a, 0, false),
  ];
  const bytes = Buffer.concat(frames);
  t.equal(new FrameCounter().count(bytes), frames.length, 'in one read');
  for (const step of [1, 2, 3, 7, 100, 65_536]) {
    const counter = new FrameCounter();
    let counted = 0;
    for (let at = 0; at < bytes.length; at += step) counted += counter.count(bytes.subarray(at, at + step));
    t.equal(counted, frames.length, `${step} bytes at a time`);
  }
});

function limited() {
  const clock = new ManualClock();
  const calls: string[] = [];
  const socket = { pause: () => calls.push('pause'), resume: () => calls.push('resume') };
  const counters = { readsPaused: 0 };
  return { clock, calls, counters, reads: new ReadLimiter(socket, { clock, counters }) };
}

t.test('every frame is charged: text, ping, pong and fragment, however short', async (t) => {
  const kinds: [string, Buffer][] = [
    ['text', frame(0x81, 2)],
    ['ping', frame(0x89, 0)],
    ['pong', frame(0x8a, 0)],
    ['empty fragment', frame(0x00, 0)],
  ];
  for (const [name, one] of kinds) {
    const { clock, calls, reads } = limited();
    const read = Buffer.concat(Array(100).fill(one));
    let frames = 0;
    for (; !reads.isPaused && frames < 1_000_000; frames += 100) reads.consumeRead(read, clock.now());
    t.ok(frames <= BURST_BYTES / FRAME_BYTES + 100, `${name}: paused after ${frames} frames`);
    t.same(calls, ['pause']);
    reads.end();
  }
});

t.test('values are charged besides bytes, and reading resumes when the quota allows it', async (t) => {
  const { clock, calls, counters, reads } = limited();
  reads.consumeValues(BURST_BYTES / VALUE_BYTES);
  t.notOk(reads.isPaused, 'a burst is allowed');
  reads.consumeValues((100 * BYTES_PER_MS) / VALUE_BYTES);
  reads.consumeValues((100 * BYTES_PER_MS) / VALUE_BYTES);
  t.ok(reads.isPaused);
  await clock.advance(199);
  t.same(calls, ['pause']);
  await clock.advance(1);
  t.same(calls, ['pause', 'resume']);
  t.same(counters, { readsPaused: 1 });
  reads.consumeValues((1000 * BYTES_PER_MS) / VALUE_BYTES);
  reads.end();
  await clock.advance(5_000);
  t.same(calls, ['pause', 'resume', 'pause'], 'a closed socket is not resumed');
});

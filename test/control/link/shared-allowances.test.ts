import t from 'tap';
import { SharedAllowances } from '../../../lib/control/link/shared-allowances.ts';
import { BURST_BYTES, BYTES_PER_MS } from '../../../lib/protocol/allowance.ts';
import { ReadLimiter } from '../../../lib/protocol/read-limiter.ts';
import { ManualClock } from '../../support/manual-clock.ts';

/** One frame. */
const frameOf = (bytes: number) => {
  const frame = Buffer.alloc(bytes);
  frame.set([0x82, 127]);
  frame.writeUInt32BE(bytes - 10, 6);
  return frame;
};
const MEBIBYTE = frameOf(1024 * 1024);
const SECOND = 1000 * BYTES_PER_MS;

/** Connections that send as fast as they are read. */
function greedy(clock: ManualClock, shared: SharedAllowances, tokens: readonly (string | undefined)[]) {
  const socket = { pause: () => undefined, resume: () => undefined };
  const sent = { bytes: 0 };
  const readers = tokens.map((token) => new ReadLimiter(socket, { clock }, shared.join(token, clock.now())));
  const send = () => {
    for (const one of readers) {
      while (!one.isPaused) {
        one.payForRead(MEBIBYTE, clock.now());
        sent.bytes += MEBIBYTE.length;
      }
    }
  };
  const end = () => {
    for (const one of readers) one.end();
  };
  return { sent, send, end };
}

async function bytesPerSecond(tokens: readonly (string | undefined)[]): Promise<number> {
  const clock = new ManualClock();
  const flood = greedy(clock, new SharedAllowances(), tokens);
  const run = async (ms: number) => {
    for (let at = 0; at < ms; at += 20) {
      flood.send();
      await clock.advance(20);
    }
  };
  await run(60_000);
  const before = flood.sent.bytes;
  await run(20_000);
  flood.end();
  return (flood.sent.bytes - before) / 20;
}

t.test('connections that send as fast as they may do not sum up', async (t) => {
  const one = await bytesPerSecond([undefined]);
  t.ok(one > 0.9 * SECOND && one < 1.1 * SECOND, `one is read at its own rate: ${one}`);
  for (const count of [8, 20]) {
    const all = await bytesPerSecond(Array(count).fill(undefined));
    t.ok(all < 3 * SECOND, `${count} of them: ${all} bytes per second`);
    const ofToken = await bytesPerSecond(Array(count).fill('token'));
    t.ok(ofToken < 1.5 * SECOND, `${count} with one token: ${ofToken} bytes per second`);
  }
  const several = await bytesPerSecond(['a', 'a', 'a', 'a', 'b', 'b', 'b', 'b']);
  t.ok(several < 3 * SECOND, `of two tokens: ${several} bytes per second`);
});

t.test('those that send most are paused first', async (t) => {
  const clock = new ManualClock();
  const shared = new SharedAllowances();
  const flood = greedy(clock, shared, Array(10).fill('token'));
  const honest = new ReadLimiter(
    { pause: () => t.fail('an honest agent was paused'), resume: () => undefined },
    { clock },
    shared.join('token', clock.now()),
  );
  for (let second = 0; second < 30; second += 1) {
    flood.send();
    // An end with a result of 1 MiB of text now and then, beside its heartbeats.
    honest.payForRead(second % 10 === 5 ? MEBIBYTE : frameOf(60), clock.now());
    await clock.advance(1000);
  }
  t.notOk(honest.isPaused);
  flood.end();
});

t.test('a fleet with one token that returns at once is not slowed down', async (t) => {
  const clock = new ManualClock();
  const shared = new SharedAllowances();
  let paused = 0;
  const pause = () => {
    paused += 1;
  };
  const socket = { pause, resume: () => undefined };
  for (let agent = 0; agent < 2_000; agent += 1) {
    const reads = new ReadLimiter(socket, { clock }, shared.join('token', clock.now()));
    reads.payForRead(frameOf(60_000), clock.now());
    reads.payForValues(3_000);
    if (agent % 10 === 0) await clock.advance(20);
  }
  t.equal(paused, 0);
});

t.test('the price falls when less is sent, and a connection that is closed no longer counts', async (t) => {
  const clock = new ManualClock();
  const shared = new SharedAllowances();
  const joined = shared.join('token', clock.now());
  t.equal(shared.price(clock.now()), 1);
  for (const one of joined) one.charge(100 * BURST_BYTES, clock.now());
  t.equal(shared.price(clock.now()), 32, 'at most');
  await clock.advance(31_000);
  t.equal(shared.price(clock.now()), 1);
  shared.leave(joined);
  t.not(shared.join('token', clock.now()), undefined);
  await clock.advance(10_000);
  const other = shared.join('other', clock.now());
  t.not(other.at(-1), joined.at(-1), 'each token has its own');
  t.equal(other[0], joined[0], 'and the instance has one');
});

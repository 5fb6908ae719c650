import { randomUUID } from 'node:crypto';
import t from 'tap';
import { SenderQuotas } from '../../../lib/control/link/sender-quotas.ts';
import { BURST_BYTES, BYTES_PER_MS } from '../../../lib/protocol/link/link-quota.ts';
import { ReadLimiter } from '../../../lib/protocol/link/read-limiter.ts';
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
function greedy(clock: ManualClock, quotas: SenderQuotas, tokens: readonly (string | undefined)[]) {
  const socket = { pause: () => undefined, resume: () => undefined };
  const sent = { bytes: 0 };
  const readers = tokens.map((group) => {
    const quota = quotas.join({ serverUuid: randomUUID(), group }, clock.now());
    return new ReadLimiter(socket, { clock }, quota);
  });
  const send = () => {
    for (const one of readers) {
      while (!one.isPaused) {
        one.consumeRead(MEBIBYTE, clock.now());
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
  const flood = greedy(clock, new SenderQuotas(), tokens);
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
  const quotas = new SenderQuotas();
  const flood = greedy(clock, quotas, Array(10).fill('token'));
  const honest = new ReadLimiter(
    { pause: () => t.fail('an honest agent was paused'), resume: () => undefined },
    { clock },
    quotas.join({ serverUuid: randomUUID(), group: 'token' }, clock.now()),
  );
  for (let second = 0; second < 30; second += 1) {
    flood.send();
    // An end with a result of 1 MiB of text now and then, beside its heartbeats.
    honest.consumeRead(second % 10 === 5 ? MEBIBYTE : frameOf(60), clock.now());
    await clock.advance(1000);
  }
  t.notOk(honest.isPaused);
  flood.end();
});

t.test('a fleet with one token that returns at once is not slowed down', async (t) => {
  const clock = new ManualClock();
  const quotas = new SenderQuotas();
  let paused = 0;
  const pause = () => {
    paused += 1;
  };
  const socket = { pause, resume: () => undefined };
  for (let agent = 0; agent < 2_000; agent += 1) {
    const quota = quotas.join({ serverUuid: randomUUID(), group: 'token' }, clock.now());
    const reads = new ReadLimiter(socket, { clock }, quota);
    reads.consumeRead(frameOf(60_000), clock.now());
    reads.consumeValues(3_000);
    if (agent % 10 === 0) await clock.advance(20);
  }
  t.equal(paused, 0);
});

t.test(
  'the cost factor falls when less is sent, and never multiplies the cost of what is within the share of a sender',
  async (t) => {
    const clock = new ManualClock();
    const quotas = new SenderQuotas();
    const honest = quotas.join({ serverUuid: 'honest' }, clock.now());
    t.equal(quotas.costFactor(clock.now()), 1);
    for (let sender = 0; sender < 40; sender += 1) {
      const quota = quotas.join({ serverUuid: `greedy ${sender}` }, clock.now());
      quota.charge(100 * BURST_BYTES, clock.now());
      quotas.leave(quota, clock.now());
    }
    t.ok(quotas.costFactor(clock.now()) > 31, 'the factor is high');
    t.equal(honest.charge(BURST_BYTES - 64 * 1024, clock.now()), 0, 'a status of 3,000 VMs');
    await clock.advance(2_000);
    t.ok(quotas.costFactor(clock.now()) > 20, 'the factor is still high');
    t.equal(honest.charge(512 * 1024, clock.now()), 0);
    t.ok(honest.charge(BURST_BYTES, clock.now()) > 10_000, 'what exceeds the share is multiplied');
    await clock.advance(64_000);
    t.equal(quotas.costFactor(clock.now()), 1);
  },
);

t.test('a sender that connects again and again has one quota, and costs the others only what it admits', async (t) => {
  const clock = new ManualClock();
  const quotas = new SenderQuotas();
  const attacker = { serverUuid: 'attacker' };
  for (let connection = 0; connection < 20; connection += 1) {
    const quota = quotas.join(attacker, clock.now());
    quota.charge(85 * 1024 * 1024, clock.now());
    quotas.leave(quota, clock.now());
    await clock.advance(50);
  }
  t.ok(quotas.costFactor(clock.now()) <= 2, `the factor is ${quotas.costFactor(clock.now())}`);
  t.ok(quotas.pauseMsOf(attacker, clock.now()) > 10_000, 'it may not connect now');
  t.equal(quotas.pauseMsOf({ serverUuid: 'another' }, clock.now()), 0);
  t.equal(quotas.pauseMsOf({ ...attacker, group: 'token' }, clock.now()), 0);
  await clock.advance(600_000);
  t.equal(quotas.pauseMsOf(attacker, clock.now()), 0, 'until its quota allows it');
});

t.test('groups without connections and with a whole quota are forgotten', (t) => {
  const quotas = new SenderQuotas();
  for (let each = 0; each < 10_000; each += 1) {
    const now = each * 1_000;
    quotas.leave(quotas.join({ serverUuid: randomUUID(), group: `address ${each}` }, now), now);
  }
  t.ok(quotas.groups <= 200, `${quotas.groups} groups`);
  t.end();
});

t.test('a sender has at most two connections that have not begun their session', (t) => {
  const quotas = new SenderQuotas();
  const sender = { serverUuid: randomUUID() };
  const arrive = () => quotas.join(sender, 0).arrive(() => undefined);
  const first = arrive();
  t.notOk(quotas.hasTooManyArriving(sender));
  arrive();
  t.ok(quotas.hasTooManyArriving(sender));
  t.notOk(quotas.hasTooManyArriving({ serverUuid: randomUUID() }), 'others are not affected');
  first();
  first();
  t.notOk(quotas.hasTooManyArriving(sender), 'one has begun its session, or is closed');
  t.end();
});

t.test('a token that is valid for several servers leaves places for the arrivals of others', (t) => {
  const quotas = new SenderQuotas();
  const newSender = (group: string) => ({ serverUuid: randomUUID(), group });
  const settled = Array.from({ length: 150 }, () => {
    t.notOk(quotas.hasTooManyArriving(newSender('token')));
    return quotas.join(newSender('token'), 0).arrive(() => undefined);
  });
  t.ok(quotas.hasTooManyArriving(newSender('token')));
  t.notOk(quotas.hasTooManyArriving(newSender('another')));
  settled[0]?.();
  t.notOk(quotas.hasTooManyArriving(newSender('token')));
  t.end();
});

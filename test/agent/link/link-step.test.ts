import t from 'tap';
import { initialLink, type LinkEvent, LinkTransitionError, type Phase } from '../../../lib/agent/link/link-state.ts';
import { MAX_RETURN_MS } from '../../../lib/protocol/limits.ts';
import type { RefuseFrame } from '../../../lib/protocol/link/frames.ts';
import { matchLists } from '../../support/match-lists.ts';
import { A, B, C, refusal, uuidOf, Walk, welcome } from '../link-walk.ts';

t.test('a new agent resolves, connects, greets, journals the epoch and only then enters the session', async (t) => {
  const walk = new Walk().on({ type: 'start' });
  t.same([walk.state.phase, ...walk.done], ['resolving', 'arm', 'resolve']);
  walk.on({ type: 'resolved', timerGeneration: walk.state.timerGeneration, addresses: [A] });
  t.same([walk.state.phase, ...walk.done], ['connecting', 'connect']);
  walk.on({ type: 'begun', socketId: 1 });
  matchLists(t, walk.effects, [{ do: 'arm', ms: 2000 }], 'the connect timeout starts when the dial begins');
  walk.on({ type: 'opened', socketId: 1 });
  matchLists(t, walk.effects, [
    { do: 'arm', ms: 5000 },
    { do: 'greet', conn: 1 },
  ]);
  walk.on({ type: 'welcomed', socketId: 1, welcome: welcome(7) });
  matchLists(t, [walk.state.phase, ...walk.effects], ['journalling', { do: 'journal-epoch', epoch: 7 }]);
  t.equal(walk.state.session, undefined);
  walk.on({ type: 'journalled', socketId: 1 });
  matchLists(t, [walk.state.phase, ...walk.effects], ['live', { do: 'enter', socketId: 1 }]);
  t.match(walk.state.session, { socketId: 1, epoch: 7 });
});

t.test('a welcome at or below the highest known epoch is ignored', async (t) => {
  const walk = new Walk();
  walk.state = initialLink(5, 8000);
  walk.greeting(A);
  for (const epoch of [4, 5]) {
    walk.on({ type: 'welcomed', socketId: 1, welcome: welcome(epoch) });
    t.same([walk.state.phase, walk.done], ['greeting', []], `epoch ${epoch}`);
  }
  walk.on({ type: 'welcomed', socketId: 1, welcome: welcome(6) });
  t.equal(walk.state.phase, 'journalling');
});

t.test('an agent tries each known address, then DNS, before it waits', async (t) => {
  const walk = new Walk();
  walk.state = { ...walk.state, known: [A, B, C] };
  walk.chance = 0.99;
  walk.on({ type: 'start' });
  const order = [walk.host];
  walk.chance = 0;
  order.push(walk.failed().host, walk.failed().host);
  t.same(order, ['c', 'a', 'b'], 'in random order');
  walk.failed();
  t.equal(walk.state.phase, 'resolving');
  walk.on({ type: 'resolved', timerGeneration: walk.state.timerGeneration, addresses: [A, B, C] });
  t.equal(walk.state.phase, 'waiting');
});

t.test('the backoff has full jitter under a ceiling that doubles up to a bound', async (t) => {
  const walk = new Walk().connecting(A);
  walk.chance = 0.5;
  const waits: (number | undefined)[] = [];
  for (let round = 0; round < 8; round++) {
    walk.failed();
    if (walk.state.phase === 'resolving')
      walk.on({ type: 'resolved', timerGeneration: walk.state.timerGeneration, addresses: [] });
    waits.push(walk.wait);
    walk.expire();
  }
  t.same(waits, [125, 250, 500, 1000, 2000, 4000, 4000, 4000]);
});

t.test(
  'after a steady session it reconnects almost immediately, after one that never answered with backoff',
  async (t) => {
    const steady = new Walk().live(B);
    steady.chance = 0.9;
    steady.on({ type: 'closed', socketId: 1, reason: 'gone' });
    t.same([steady.state.phase, steady.wait], ['waiting', 90]);
    const flapping = new Walk().connecting(A);
    flapping.chance = 0.999;
    for (let epoch = 1; epoch < 5; epoch++) {
      flapping.greet(epoch);
      const socket = flapping.state.session?.socketId ?? 0;
      flapping.on({ type: 'closed', socketId: socket, reason: 'gone' });
      if (epoch === 4) t.ok((flapping.wait ?? 0) > 1900, 'the fourth wait of a flapping session is long');
      flapping.expire();
    }
  },
);

t.test('an agent whose sessions answer but always end soon reconnects with backoff', async (t) => {
  const walk = new Walk().connecting(A);
  walk.chance = 0.999;
  for (let epoch = 1; epoch < 5; epoch++) {
    walk.greet(epoch);
    const socket = walk.state.session?.socketId ?? 0;
    walk.on({ type: 'steady', socketId: socket }, { type: 'closed', socketId: socket, reason: 'gone' });
    if (epoch === 4) t.ok((walk.wait ?? 0) > 1900);
    walk.expire();
  }
  walk.greet(9).on({ type: 'steady', socketId: walk.state.session?.socketId ?? 0 });
  walk.now += 5000;
  walk.on({ type: 'closed', socketId: walk.state.session?.socketId ?? 0, reason: 'gone' });
  t.ok((walk.wait ?? 0) < 100, 'a session that lasts resets the backoff');
});

t.test('the instance of a lost session is tried last', async (t) => {
  const walk = new Walk().live(B, C);
  walk.on({ type: 'closed', socketId: 1, reason: 'gone' });
  t.same([walk.expire().host, walk.failed().host, walk.failed().host], ['b', 'c', 'a']);
  const alone = new Walk().live();
  alone.on({ type: 'closed', socketId: 1, reason: 'gone' });
  t.equal(alone.expire().host, 'a', 'without another instance it is tried first');
});

t.test('the connect timeout grows with each timeout, until there is a session', async (t) => {
  const walk = new Walk().connecting(A, B, C);
  const waits: (number | undefined)[] = [];
  for (let tries = 0; tries < 5; tries++) {
    untilConnecting();
    walk.on({ type: 'begun', socketId: walk.socket });
    waits.push(walk.wait);
    walk.expire();
  }
  t.same(waits, [2000, 4000, 8000, 8000, 8000]);
  untilConnecting();
  walk.greet(1).on({ type: 'goaway', socketId: walk.state.session?.socketId ?? 0, withinMs: undefined, addresses: [] });
  untilConnecting();
  walk.on({ type: 'begun', socketId: walk.socket });
  t.equal(walk.wait, 2000);
  walk.greet(2).on({ type: 'closed', socketId: walk.state.session?.socketId ?? 0, reason: 'gone' });
  untilConnecting();
  walk.on({ type: 'begun', socketId: walk.socket });
  t.equal(walk.wait, 4000, 'after a lost session it begins with a longer timeout');

  function untilConnecting(): void {
    while (walk.state.phase !== 'connecting') walk.expire();
  }
});

t.test('an instance that keeps naming new addresses does not make the agent connect without end', async (t) => {
  const walk = new Walk().connecting(A);
  let dials = 0;
  for (; walk.state.phase === 'connecting' && dials < 1000; dials++) {
    walk.on({ type: 'opened', socketId: walk.socket });
    const addresses = [{ uuid: uuidOf(1), host: `h${dials}`, port: 1 }];
    walk.on({ type: 'refused', socketId: walk.socket, refusal: refusal('full', { addresses }) });
  }
  t.equal(dials, 100);
  t.equal(walk.state.phase, 'waiting');
});

t.test('at most one soft goaway per second is honoured', async (t) => {
  const walk = new Walk().live(B);
  const ask = () => walk.on({ type: 'goaway', socketId: 1, withinMs: undefined, addresses: [] });
  ask().failed();
  t.match(walk.state, { phase: 'live', session: { socketId: 1 } });
  t.equal(ask().state.phase, 'live');
  walk.now += 1000;
  t.equal(ask().state.phase, 'connecting');
});

t.test("an agent's reaction to a refusal depends on its code", async (t) => {
  const rows: { code: string; fields?: Partial<RefuseFrame>; phase: Phase; host?: string; does: string }[] = [
    {
      code: 'superseded',
      fields: { conn: 9 },
      phase: 'connecting',
      host: 'a',
      does: 'tries the same address with a conn above the row',
    },
    {
      code: 'superseded',
      fields: { conn: Number.MAX_SAFE_INTEGER },
      phase: 'connecting',
      host: 'b',
      does: 'no conn is left above this one: next address',
    },
    {
      code: 'superseded',
      fields: { conn: 0 },
      phase: 'connecting',
      host: 'b',
      does: 'the conn is not higher: next address',
    },
    { code: 'stale-journal', phase: 'renewing', host: 'a', does: 'begins a new journal' },
    { code: 'epoch-out-of-range', phase: 'renewing', host: 'a', does: 'begins a new journal' },
    { code: 'incarnation-alive', phase: 'waiting', does: 'waits before it tries any' },
    { code: 'draining', phase: 'connecting', host: 'b', does: 'next address' },
    { code: 'full', fields: { retryAfterMs: 2000 }, phase: 'connecting', host: 'b', does: 'next address' },
    { code: 'no-database', phase: 'connecting', host: 'b', does: 'next address' },
    { code: 'bad-credentials', phase: 'connecting', host: 'b', does: 'next address' },
    { code: 'said-by-a-newer-instance', phase: 'connecting', host: 'b', does: 'next address' },
  ];
  for (const { code, fields, phase, host, does } of rows) {
    const walk = new Walk().greeting(A, B);
    walk.on({ type: 'refused', socketId: 1, refusal: refusal(code, fields) });
    t.same([walk.state.phase, walk.host, walk.done[0]], [phase, host, 'close'], `${code}: ${does}`);
  }
});

t.test('after superseded, the next hello has a conn above the row', async (t) => {
  const walk = new Walk().greeting(A);
  walk.on(
    { type: 'refused', socketId: 1, refusal: refusal('superseded', { conn: 9 }) },
    { type: 'opened', socketId: 2 },
  );
  matchLists(t, walk.effects, [{ do: 'arm' }, { do: 'greet', conn: 10 }]);
});

t.test('an agent gives up on an instance that always answers superseded', async (t) => {
  const walk = new Walk().greeting(A, B);
  for (let tries = 0; walk.host === 'a' && tries < 10; tries++) {
    walk.on({ type: 'refused', socketId: walk.socket, refusal: refusal('superseded', { conn: 100 * (tries + 1) }) });
    if (walk.host === 'a') walk.on({ type: 'opened', socketId: walk.socket });
  }
  t.equal(walk.host, 'b');
});

t.test('a new journal starts from epoch 0 at the same address', async (t) => {
  const walk = new Walk();
  walk.state = initialLink(5, 8000);
  walk.greeting(A, B).on({ type: 'refused', socketId: 1, refusal: refusal('stale-journal') }, { type: 'renewed' });
  t.same([walk.state.phase, walk.host, walk.state.epoch], ['connecting', 'a', 0]);
});

t.test('an address that asked the agent to wait is not tried before', async (t) => {
  const walk = new Walk().greeting(A);
  walk.on({ type: 'refused', socketId: 1, refusal: refusal('full', { retryAfterMs: 2000 }) });
  t.same([walk.state.phase, walk.wait], ['waiting', 2000]);
  walk.now = 1000;
  walk.expire().on({ type: 'resolved', timerGeneration: walk.state.timerGeneration + 1, addresses: [] });
  t.not(walk.state.phase, 'connecting');
  walk.now = 2001;
  if (walk.state.phase === 'resolving') walk.expire();
  if (walk.state.phase === 'waiting') walk.expire();
  t.equal(walk.state.phase, 'connecting');
});

t.test('an upgrade refused with Retry-After holds that address, at most for two minutes', async (t) => {
  const walk = new Walk().connecting(A, B);
  const refused = (retryAfterMs: number) =>
    walk.on({ type: 'closed', socketId: walk.socket, reason: '503', retryAfterMs });
  t.equal(refused(3_600_000).host, 'b', 'the other address is tried immediately');
  refused(2000);
  t.same([walk.state.phase, walk.wait], ['waiting', 2000]);
  walk.now = 2001;
  t.equal(walk.expire().host, 'b');
  walk.failed();
  walk.now = MAX_RETURN_MS + 1;
  walk.state = { ...walk.state, known: [A] };
  t.equal(walk.expire().host, 'a');
});

t.test('agents that got the same Retry-After return at different times', async (t) => {
  const waits = [0, 0.5, 0.999].map((chance) => {
    const walk = new Walk().connecting(A);
    walk.chance = chance;
    return walk.on({ type: 'closed', socketId: walk.socket, reason: '503', retryAfterMs: 2000 }).wait ?? 0;
  });
  t.equal(waits[0], 2000);
  t.ok((waits[1] ?? 0) >= 2500 && (waits[2] ?? 0) >= 2999, `${waits}`);
});

t.test('late events of closed sockets and past turns change nothing', async (t) => {
  const walk = new Walk().live(B);
  const before = walk.state;
  walk.on(
    { type: 'closed', socketId: 99, reason: '' },
    { type: 'silent', socketId: 99 },
    { type: 'dead', socketId: 99 },
  );
  walk.on(
    { type: 'expired', timerGeneration: before.timerGeneration - 1 },
    { type: 'departure', socketId: 99 },
    { type: 'opened', socketId: 99 },
  );
  walk.on({ type: 'heard', socketId: 99 }, { type: 'heard', socketId: 1 });
  walk.on(
    { type: 'resolved', timerGeneration: before.timerGeneration - 1, addresses: [C] },
    { type: 'journalled', socketId: 99 },
  );
  walk.on(
    { type: 'welcomed', socketId: 1, welcome: welcome(50) },
    { type: 'refused', socketId: 1, refusal: refusal('full') },
  );
  t.same(walk.state, before);
});

t.test('impossible events throw an error that names the phase', async (t) => {
  const rows: [string, Walk, LinkEvent][] = [
    ['started twice', new Walk().live(), { type: 'start' }],
    ['opened twice', new Walk().greeting(A), { type: 'opened', socketId: 1 }],
    ['journalled before a welcome', new Walk().greeting(A), { type: 'journalled', socketId: 1 }],
    ['renewed without a request', new Walk().live(), { type: 'renewed' }],
  ];
  for (const [name, walk, event] of rows) t.throws(() => walk.on(event), LinkTransitionError, name);
  t.throws(() => new Walk().live().on({ type: 'start' }), /start is not possible in phase live/);
});

t.test('stop closes everything, and later events change nothing', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'goaway', socketId: 1, withinMs: 3000, addresses: [] }, { type: 'stop' });
  matchLists(t, walk.effects, [
    { do: 'close', socketId: 2 },
    { do: 'close', socketId: 1 },
  ]);
  walk.on({ type: 'closed', socketId: 1, reason: '' }, { type: 'start' });
  t.equal(walk.state.phase, 'stopped');
});

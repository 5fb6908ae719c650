import t from 'tap';
import type { Endpoint } from '../../lib/cn-agent/endpoints.ts';
import { step } from '../../lib/cn-agent/link.ts';
import {
  initialLink,
  type LinkEffect,
  type LinkEvent,
  type LinkState,
  LinkTransitionError,
  type Phase,
} from '../../lib/cn-agent/link-state.ts';
import type { RefuseFrame, WelcomeFrame } from '../../lib/wire/frames.ts';

const uuidOf = (digit: number) => `${digit}0000000-0000-4000-8000-000000000000`;
const A: Endpoint = { host: 'a', port: 1, uuid: uuidOf(1) };
const B: Endpoint = { host: 'b', port: 2, uuid: uuidOf(2) };
const C: Endpoint = { host: 'c', port: 3, uuid: uuidOf(3) };

const welcome = (epoch: number, cnapiUuid = uuidOf(1)): WelcomeFrame => ({
  type: 'welcome',
  version: 1,
  capabilities: [],
  cnapiUuid,
  epoch,
  heartbeatMs: 1000,
  serverSilenceMs: 3000,
  reconnectMaxMs: 8000,
  maxFrameBytes: 65_536,
  addresses: [],
  sendSysinfo: false,
});

const refusal = (code: string, fields: Partial<RefuseFrame> = {}): RefuseFrame => ({
  type: 'refuse',
  code,
  message: '',
  ...fields,
});

/** A link that is walked through events; `chance` and `now` are set by hand. */
class Walk {
  state: LinkState = initialLink(0, 8000);
  effects: LinkEffect[] = [];
  now = 0;
  chance = 0;

  on(...events: LinkEvent[]): this {
    for (const event of events) {
      const { state, effects } = step(this.state, event, { now: this.now, chance: this.chance });
      this.state = state;
      this.effects = effects;
    }
    return this;
  }

  expire(): this {
    return this.on({ type: 'expired', turn: this.state.turn });
  }

  get socket(): number {
    return this.state.attempt?.socket ?? 0;
  }

  get done(): string[] {
    return this.effects.map((effect) => effect.do);
  }

  get wait(): number | undefined {
    return this.effects.find((effect) => effect.do === 'arm')?.ms;
  }

  get host(): string | undefined {
    return this.state.attempt?.endpoint.host;
  }

  connecting(...known: Endpoint[]): this {
    this.on({ type: 'start' });
    return this.on({ type: 'resolved', turn: this.state.turn, addresses: known });
  }

  greeting(...known: Endpoint[]): this {
    this.connecting(...known);
    return this.on({ type: 'opened', socket: this.socket });
  }

  greet(epoch: number, cnapiUuid?: string): this {
    const { socket } = this;
    return this.on(
      { type: 'opened', socket },
      { type: 'welcomed', socket, welcome: welcome(epoch, cnapiUuid) },
      { type: 'journalled', socket },
    );
  }

  /** With A, at epoch 1, having answered a heartbeat and lasted. */
  live(...known: Endpoint[]): this {
    this.connecting(A).greet(1);
    this.on({ type: 'steady', socket: 1 });
    this.now += 5000;
    this.state = { ...this.state, known: [A, ...known] };
    return this;
  }

  failed(): this {
    return this.on({ type: 'closed', socket: this.socket, reason: 'refused' });
  }
}

t.test('a first contact asks for addresses, connects, greets, journals the epoch and only then enters', async (t) => {
  const walk = new Walk().on({ type: 'start' });
  t.same([walk.state.phase, ...walk.done], ['resolving', 'arm', 'resolve']);
  walk.on({ type: 'resolved', turn: walk.state.turn, addresses: [A] });
  t.same([walk.state.phase, ...walk.done], ['connecting', 'connect']);
  walk.on({ type: 'begun', socket: 1 });
  t.match(walk.effects, [{ do: 'arm', ms: 2000 }], 'its time runs from when the dial had its turn');
  walk.on({ type: 'opened', socket: 1 });
  t.match(walk.effects, [
    { do: 'arm', ms: 5000 },
    { do: 'greet', conn: 1 },
  ]);
  walk.on({ type: 'welcomed', socket: 1, welcome: welcome(7) });
  t.match([walk.state.phase, ...walk.effects], ['journalling', { do: 'journal-epoch', epoch: 7 }]);
  t.equal(walk.state.session, undefined);
  walk.on({ type: 'journalled', socket: 1 });
  t.match([walk.state.phase, ...walk.effects], ['live', { do: 'enter', socket: 1 }]);
  t.match(walk.state.session, { socket: 1, epoch: 7 });
});

t.test('a welcome at or below the highest epoch is not heard', async (t) => {
  const walk = new Walk();
  walk.state = initialLink(5, 8000);
  walk.greeting(A);
  for (const epoch of [4, 5]) {
    walk.on({ type: 'welcomed', socket: 1, welcome: welcome(epoch) });
    t.same([walk.state.phase, walk.done], ['greeting', []], `epoch ${epoch}`);
  }
  walk.on({ type: 'welcomed', socket: 1, welcome: welcome(6) });
  t.equal(walk.state.phase, 'journalling');
});

t.test('each known address is tried, then DNS asked, before anything is waited for', async (t) => {
  const walk = new Walk();
  walk.state = { ...walk.state, known: [A, B, C] };
  walk.chance = 0.99;
  walk.on({ type: 'start' });
  const order = [walk.host];
  walk.chance = 0;
  order.push(walk.failed().host, walk.failed().host);
  t.same(order, ['c', 'a', 'b'], 'in the order chance gives');
  walk.failed();
  t.equal(walk.state.phase, 'resolving');
  walk.on({ type: 'resolved', turn: walk.state.turn, addresses: [A, B, C] });
  t.equal(walk.state.phase, 'waiting');
});

t.test('the wait is full jitter under a ceiling that doubles up to the bound', async (t) => {
  const walk = new Walk().connecting(A);
  walk.chance = 0.5;
  const waits: (number | undefined)[] = [];
  for (let round = 0; round < 8; round++) {
    walk.failed();
    if (walk.state.phase === 'resolving') walk.on({ type: 'resolved', turn: walk.state.turn, addresses: [] });
    waits.push(walk.wait);
    walk.expire();
  }
  t.same(waits, [125, 250, 500, 1000, 2000, 4000, 4000, 4000]);
});

t.test('a session that had answered is sought again almost at once, one that never did with backoff', async (t) => {
  const steady = new Walk().live(B);
  steady.chance = 0.9;
  steady.on({ type: 'closed', socket: 1, reason: 'gone' });
  t.same([steady.state.phase, steady.wait], ['waiting', 90]);
  const flapping = new Walk().connecting(A);
  flapping.chance = 0.999;
  for (let epoch = 1; epoch < 5; epoch++) {
    flapping.greet(epoch);
    const socket = flapping.state.session?.socket ?? 0;
    flapping.on({ type: 'closed', socket, reason: 'gone' });
    if (epoch === 4) t.ok((flapping.wait ?? 0) > 1900, 'the fourth wait of a flapping session is long');
    flapping.expire();
  }
});

t.test('an instance that answers and then always loses its session soon is sought with backoff as well', async (t) => {
  const walk = new Walk().connecting(A);
  walk.chance = 0.999;
  for (let epoch = 1; epoch < 5; epoch++) {
    walk.greet(epoch);
    const socket = walk.state.session?.socket ?? 0;
    walk.on({ type: 'steady', socket }, { type: 'closed', socket, reason: 'gone' });
    if (epoch === 4) t.ok((walk.wait ?? 0) > 1900);
    walk.expire();
  }
  walk.greet(9).on({ type: 'steady', socket: walk.state.session?.socket ?? 0 });
  walk.now += 5000;
  walk.on({ type: 'closed', socket: walk.state.session?.socket ?? 0, reason: 'gone' });
  t.ok((walk.wait ?? 0) < 100, 'until one lasts');
});

t.test('an instance that names ever new addresses does not keep it dialling', async (t) => {
  const walk = new Walk().connecting(A);
  let dials = 0;
  for (; walk.state.phase === 'connecting' && dials < 1000; dials++) {
    walk.on({ type: 'opened', socket: walk.socket });
    const addresses = [{ uuid: uuidOf(1), host: `h${dials}`, port: 1 }];
    walk.on({ type: 'refused', socket: walk.socket, refusal: refusal('full', { addresses }) });
  }
  t.equal(dials, 100);
  t.equal(walk.state.phase, 'waiting');
});

t.test('soft requests are heard once a second at most', async (t) => {
  const walk = new Walk().live(B);
  const ask = () => walk.on({ type: 'goaway', socket: 1, withinMs: undefined, addresses: [] });
  ask().failed();
  t.match(walk.state, { phase: 'live', session: { socket: 1 } });
  t.equal(ask().state.phase, 'live');
  walk.now += 1000;
  t.equal(ask().state.phase, 'connecting');
});

t.test('what an agent does about a refusal depends on its code', async (t) => {
  const rows: { code: string; fields?: Partial<RefuseFrame>; phase: Phase; host?: string; does: string }[] = [
    {
      code: 'superseded',
      fields: { conn: 9 },
      phase: 'connecting',
      host: 'a',
      does: 'goes on above the row, same address',
    },
    {
      code: 'superseded',
      fields: { conn: Number.MAX_SAFE_INTEGER },
      phase: 'connecting',
      host: 'b',
      does: 'a number that leaves no room above: next address',
    },
    { code: 'superseded', fields: { conn: 0 }, phase: 'connecting', host: 'b', does: 'no higher number: next address' },
    { code: 'stale-journal', phase: 'renewing', host: 'a', does: 'begins a new journal' },
    { code: 'epoch-out-of-range', phase: 'renewing', host: 'a', does: 'begins a new journal' },
    { code: 'incarnation-alive', phase: 'waiting', does: 'backs off from all' },
    { code: 'draining', phase: 'connecting', host: 'b', does: 'next address' },
    { code: 'full', fields: { retryAfterMs: 2000 }, phase: 'connecting', host: 'b', does: 'next address' },
    { code: 'no-database', phase: 'connecting', host: 'b', does: 'next address' },
    { code: 'bad-credentials', phase: 'connecting', host: 'b', does: 'next address' },
    { code: 'said-by-a-newer-instance', phase: 'connecting', host: 'b', does: 'next address' },
  ];
  for (const { code, fields, phase, host, does } of rows) {
    const walk = new Walk().greeting(A, B);
    walk.on({ type: 'refused', socket: 1, refusal: refusal(code, fields) });
    t.same([walk.state.phase, walk.host, walk.done[0]], [phase, host, 'close'], `${code}: ${does}`);
  }
});

t.test('superseded: the next hello has a conn above the row', async (t) => {
  const walk = new Walk().greeting(A);
  walk.on({ type: 'refused', socket: 1, refusal: refusal('superseded', { conn: 9 }) }, { type: 'opened', socket: 2 });
  t.match(walk.effects, [{ do: 'arm' }, { do: 'greet', conn: 10 }]);
});

t.test('an instance that always says superseded is not asked for ever', async (t) => {
  const walk = new Walk().greeting(A, B);
  for (let tries = 0; walk.host === 'a' && tries < 10; tries++) {
    walk.on({ type: 'refused', socket: walk.socket, refusal: refusal('superseded', { conn: 100 * (tries + 1) }) });
    if (walk.host === 'a') walk.on({ type: 'opened', socket: walk.socket });
  }
  t.equal(walk.host, 'b');
});

t.test('a new journal starts from epoch 0 at the same address', async (t) => {
  const walk = new Walk();
  walk.state = initialLink(5, 8000);
  walk.greeting(A, B).on({ type: 'refused', socket: 1, refusal: refusal('stale-journal') }, { type: 'renewed' });
  t.same([walk.state.phase, walk.host, walk.state.epoch], ['connecting', 'a', 0]);
});

t.test('an endpoint that asked to be left alone is, until then', async (t) => {
  const walk = new Walk().greeting(A);
  walk.on({ type: 'refused', socket: 1, refusal: refusal('full', { retryAfterMs: 2000 }) });
  t.same([walk.state.phase, walk.wait], ['waiting', 2000]);
  walk.now = 1000;
  walk.expire().on({ type: 'resolved', turn: walk.state.turn + 1, addresses: [] });
  t.not(walk.state.phase, 'connecting');
  walk.now = 2001;
  if (walk.state.phase === 'resolving') walk.expire();
  if (walk.state.phase === 'waiting') walk.expire();
  t.equal(walk.state.phase, 'connecting');
});

t.test('an upgrade refused with a time to come again holds that address, but not for ever', async (t) => {
  const walk = new Walk().connecting(A, B);
  const refused = (retryAfterMs: number) =>
    walk.on({ type: 'closed', socket: walk.socket, reason: '503', retryAfterMs });
  t.equal(refused(3_600_000).host, 'b', 'the others are tried at once');
  refused(2000);
  t.same([walk.state.phase, walk.wait], ['waiting', 2000]);
  walk.now = 2001;
  t.equal(walk.expire().host, 'b');
  walk.failed();
  walk.now = 30_001;
  walk.state = { ...walk.state, known: [A] };
  t.equal(walk.expire().host, 'a');
});

t.test('told to go away, it opens the next session before it closes this one', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'goaway', socket: 1, withinMs: 3000, addresses: [] });
  t.match(walk.effects, [
    { do: 'arm-departure', socket: 1, ms: 3000 },
    { do: 'connect', endpoint: B },
  ]);
  t.equal(walk.state.session?.socket, 1, 'the old session serves on');
  walk.greet(2, uuidOf(2));
  t.match(walk.effects, [
    { do: 'enter', socket: 2 },
    { do: 'close', socket: 1 },
  ]);
  t.match(walk.state, { phase: 'live', move: 'no', session: { socket: 2, epoch: 2 } });
});

t.test('asked to go away, it stays when no other instance takes it in one round', async (t) => {
  const walk = new Walk().live(B, C);
  walk.on({ type: 'goaway', socket: 1, withinMs: undefined, addresses: [] });
  t.equal(walk.failed().state.phase, 'connecting');
  walk.failed();
  t.match(walk.state, { phase: 'live', move: 'no', session: { socket: 1 } });
  walk.now += 1000;
  walk.on({ type: 'goaway', socket: 1, withinMs: undefined, addresses: [] });
  t.equal(walk.state.phase, 'connecting', 'and each request is good for another round');
});

t.test('a soft request does not make it leave for its own instance under another address', async (t) => {
  const walk = new Walk().live({ host: 'a-by-another-name', port: 1, uuid: uuidOf(1) });
  walk.on({ type: 'goaway', socket: 1, withinMs: undefined, addresses: [] });
  t.match(walk.state, { phase: 'live', move: 'no' });
});

t.test('at the end of the time it was given it leaves, even with nowhere to go', async (t) => {
  const walk = new Walk().live();
  walk.on({ type: 'goaway', socket: 1, withinMs: 100, addresses: [] }, { type: 'departure', socket: 1 });
  t.match(walk.effects[0], { do: 'close', socket: 1 });
  t.equal(walk.state.session, undefined);
  t.not(walk.state.phase, 'live');
});

t.test('a move whose new session was welcomed and then lost gives up the old one too: its epoch is over', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'goaway', socket: 1, withinMs: 3000, addresses: [] });
  walk.on({ type: 'opened', socket: 2 }, { type: 'welcomed', socket: 2, welcome: welcome(2) });
  walk.failed();
  t.match(walk.effects[0], { do: 'close', socket: 1 });
  t.equal(walk.state.session, undefined);
  t.equal(walk.state.phase, 'connecting', 'and seeks another at once');
});

t.test('a session lost while it moves is simply gone; the move goes on', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'goaway', socket: 1, withinMs: undefined, addresses: [] });
  walk.on({ type: 'closed', socket: 1, reason: 'gone' });
  t.match(walk.state, { phase: 'connecting', move: 'no', session: undefined });
});

t.test('an instance that falls silent is kept until another has welcomed the agent', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'silent', socket: 1 });
  t.match([walk.done, walk.host], [['connect'], 'b'], 'the other one is sought at once');
  t.match(walk.state, { move: 'silent', session: { socket: 1 } });
  walk.greet(2, uuidOf(2));
  t.match(walk.effects, [
    { do: 'enter', socket: 2 },
    { do: 'close', socket: 1 },
  ]);
  t.match(walk.state, { phase: 'live', move: 'no', session: { socket: 2, epoch: 2 } });
});

t.test('a silent instance is itself tried after the others: only the connection may be dead', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'silent', socket: 1 }).failed();
  t.equal(walk.host, 'a');
  walk.greet(2);
  t.match(walk.state, { phase: 'live', session: { socket: 3, epoch: 2 } });
});

t.test('an instance that is heard again before another has welcomed the agent keeps it', async (t) => {
  const rows: { name: string; until: (walk: Walk) => unknown; closed: number[]; phase: Phase }[] = [
    { name: 'while connecting', until: () => undefined, closed: [2], phase: 'live' },
    { name: 'while it asks DNS', until: (walk) => walk.failed().failed(), closed: [], phase: 'live' },
    {
      name: 'while it waits',
      until: (walk) => walk.failed().failed().expire(),
      closed: [],
      phase: 'live',
    },
    {
      name: 'while a hello is out: the answer is waited for',
      until: (walk) => walk.on({ type: 'opened', socket: 2 }),
      closed: [],
      phase: 'greeting',
    },
  ];
  for (const { name, until, closed, phase } of rows) {
    const walk = new Walk().live(B).on({ type: 'silent', socket: 1 });
    until(walk);
    walk.on({ type: 'heard', socket: 1 });
    t.match(walk.state, { phase, move: 'no', session: { socket: 1 } }, name);
    t.same(
      walk.effects.flatMap((effect) => (effect.do === 'close' ? [effect.socket] : [])),
      closed,
      name,
    );
  }
});

t.test('heard again with a hello out, it stays if that is refused and moves if it is welcomed', async (t) => {
  const greeting = () =>
    new Walk()
      .live(B, C)
      .on({ type: 'silent', socket: 1 }, { type: 'opened', socket: 2 }, { type: 'heard', socket: 1 });
  const refused = greeting().on({ type: 'refused', socket: 2, refusal: refusal('full') });
  t.match(refused.state, { phase: 'live', attempt: undefined, session: { socket: 1 } });
  const moved = greeting();
  moved.on({ type: 'welcomed', socket: 2, welcome: welcome(2) }, { type: 'journalled', socket: 2 });
  t.match(moved.state, { phase: 'live', session: { socket: 2 } });
});

t.test('an instance that stays silent is left in the end, and anybody is sought', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'silent', socket: 1 }).failed().failed().expire();
  t.equal(walk.state.phase, 'waiting');
  walk.on({ type: 'dead', socket: 1 });
  t.match(walk.effects[0], { do: 'close', socket: 1, reason: 'silent' });
  t.match(walk.state, { phase: 'waiting', move: 'no', session: undefined });
  t.equal(walk.expire().host, 'a');
});

t.test('silent and told to go: it must go, heard again or not', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'silent', socket: 1 }, { type: 'goaway', socket: 1, withinMs: 3000, addresses: [] });
  walk.on({ type: 'heard', socket: 1 });
  t.match(walk.state, { phase: 'connecting', move: 'must' });
  walk.on({ type: 'silent', socket: 1 }).failed();
  t.not(walk.host, 'a', 'and never back to where it was told to leave');
});

t.test('late events of sockets and turns that are over change nothing', async (t) => {
  const walk = new Walk().live(B);
  const before = walk.state;
  walk.on({ type: 'closed', socket: 99, reason: '' }, { type: 'silent', socket: 99 }, { type: 'dead', socket: 99 });
  walk.on(
    { type: 'expired', turn: before.turn - 1 },
    { type: 'departure', socket: 99 },
    { type: 'opened', socket: 99 },
  );
  walk.on({ type: 'heard', socket: 99 }, { type: 'heard', socket: 1 });
  walk.on({ type: 'resolved', turn: before.turn - 1, addresses: [C] }, { type: 'journalled', socket: 99 });
  walk.on(
    { type: 'welcomed', socket: 1, welcome: welcome(50) },
    { type: 'refused', socket: 1, refusal: refusal('full') },
  );
  t.same(walk.state, before);
});

t.test('impossible events throw and say where', async (t) => {
  const rows: [string, Walk, LinkEvent][] = [
    ['start twice', new Walk().live(), { type: 'start' }],
    ['opened twice', new Walk().greeting(A), { type: 'opened', socket: 1 }],
    ['journalled before a welcome', new Walk().greeting(A), { type: 'journalled', socket: 1 }],
    ['renewed unasked', new Walk().live(), { type: 'renewed' }],
  ];
  for (const [name, walk, event] of rows) t.throws(() => walk.on(event), LinkTransitionError, name);
  t.throws(() => new Walk().live().on({ type: 'start' }), /start is not possible in phase live/);
});

t.test('stop closes everything, and nothing follows', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'goaway', socket: 1, withinMs: 3000, addresses: [] }, { type: 'stop' });
  t.match(walk.effects, [
    { do: 'close', socket: 2 },
    { do: 'close', socket: 1 },
  ]);
  walk.on({ type: 'closed', socket: 1, reason: '' }, { type: 'start' });
  t.equal(walk.state.phase, 'stopped');
});

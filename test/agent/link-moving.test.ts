import t from 'tap';
import type { Phase } from '../../lib/agent/link/link-state.ts';
import { matchLists } from '../support/match-lists.ts';
import { B, C, refusal, uuidOf, Walk, welcome } from './link-walk.ts';

t.test('an agent that receives goaway opens the next session before it closes the current one', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'goaway', socketId: 1, withinMs: 3000, addresses: [] });
  matchLists(t, walk.effects, [
    { do: 'arm-departure', socketId: 1, ms: 3000 },
    { do: 'connect', endpoint: B },
  ]);
  t.equal(walk.state.session?.socketId, 1, 'the old session continues');
  walk.greet(2, uuidOf(2));
  matchLists(t, walk.effects, [
    { do: 'enter', socketId: 2 },
    { do: 'close', socketId: 1 },
  ]);
  t.match(walk.state, { phase: 'live', leaveReason: 'no', session: { socketId: 2, epoch: 2 } });
});

t.test('after a soft goaway the agent stays if no other instance accepts it in one round', async (t) => {
  const walk = new Walk().live(B, C);
  walk.on({ type: 'goaway', socketId: 1, withinMs: undefined, addresses: [] });
  t.equal(walk.failed().state.phase, 'connecting');
  walk.failed();
  t.match(walk.state, { phase: 'live', leaveReason: 'no', session: { socketId: 1 } });
  walk.now += 1000;
  walk.on({ type: 'goaway', socketId: 1, withinMs: undefined, addresses: [] });
  t.equal(walk.state.phase, 'connecting', 'each soft goaway starts another round');
});

t.test('a soft goaway does not move an agent to its own instance under another address', async (t) => {
  const walk = new Walk().live({ host: 'a-by-another-name', port: 1, uuid: uuidOf(1) });
  walk.on({ type: 'goaway', socketId: 1, withinMs: undefined, addresses: [] });
  t.match(walk.state, { phase: 'live', leaveReason: 'no' });
});

t.test('at the deadline of a goaway the agent leaves, even without another instance', async (t) => {
  const walk = new Walk().live();
  walk.on({ type: 'goaway', socketId: 1, withinMs: 100, addresses: [] }, { type: 'departure', socketId: 1 });
  t.match(walk.effects[0], { do: 'close', socketId: 1 });
  t.equal(walk.state.session, undefined);
  t.not(walk.state.phase, 'live');
});

t.test('if the new session of a move is lost after its welcome, the old session is closed too', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'goaway', socketId: 1, withinMs: 3000, addresses: [] });
  walk.on({ type: 'opened', socketId: 2 }, { type: 'welcomed', socketId: 2, welcome: welcome(2) });
  walk.failed();
  t.match(walk.effects[0], { do: 'close', socketId: 1 });
  t.equal(walk.state.session, undefined);
  t.equal(walk.state.phase, 'connecting', 'it tries another instance immediately');
});

t.test('a session that is lost during a move is dropped, and the move continues', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'goaway', socketId: 1, withinMs: undefined, addresses: [] });
  walk.on({ type: 'closed', socketId: 1, reason: 'gone' });
  t.match(walk.state, { phase: 'connecting', leaveReason: 'no', session: undefined });
});

t.test('an agent keeps a silent instance until another has welcomed it', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'silent', socketId: 1 });
  matchLists(t, [walk.done, walk.host], [['connect'], 'b'], 'the other instance is tried immediately');
  t.match(walk.state, { leaveReason: 'silent', session: { socketId: 1 } });
  walk.greet(2, uuidOf(2));
  matchLists(t, walk.effects, [
    { do: 'enter', socketId: 2 },
    { do: 'close', socketId: 1 },
  ]);
  t.match(walk.state, { phase: 'live', leaveReason: 'no', session: { socketId: 2, epoch: 2 } });
});

t.test('a silent instance is tried last, because only the connection may be dead', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'silent', socketId: 1 }).failed();
  t.equal(walk.host, 'a');
  walk.greet(2);
  t.match(walk.state, { phase: 'live', session: { socketId: 3, epoch: 2 } });
});

t.test('an instance that is heard again before another has welcomed the agent keeps it', async (t) => {
  const rows: { name: string; until: (walk: Walk) => unknown; closed: number[]; phase: Phase }[] = [
    { name: 'while connecting', until: () => undefined, closed: [2], phase: 'live' },
    { name: 'while it resolves the name', until: (walk) => walk.failed().failed(), closed: [], phase: 'live' },
    {
      name: 'while it waits',
      until: (walk) => walk.failed().failed().expire(),
      closed: [],
      phase: 'live',
    },
    {
      name: 'while a hello is unanswered: it waits for the answer',
      until: (walk) => walk.on({ type: 'opened', socketId: 2 }),
      closed: [],
      phase: 'greeting',
    },
  ];
  for (const { name, until, closed, phase } of rows) {
    const walk = new Walk().live(B).on({ type: 'silent', socketId: 1 });
    until(walk);
    walk.on({ type: 'heard', socketId: 1 });
    t.match(walk.state, { phase, leaveReason: 'no', session: { socketId: 1 } }, name);
    t.same(
      walk.effects.flatMap((effect) => (effect.do === 'close' ? [effect.socketId] : [])),
      closed,
      name,
    );
  }
});

t.test('heard again during a hello, the agent stays if refused and moves if welcomed', async (t) => {
  const greeting = () =>
    new Walk()
      .live(B, C)
      .on({ type: 'silent', socketId: 1 }, { type: 'opened', socketId: 2 }, { type: 'heard', socketId: 1 });
  const refused = greeting().on({ type: 'refused', socketId: 2, refusal: refusal('full') });
  t.match(refused.state, { phase: 'live', attempt: undefined, session: { socketId: 1 } });
  const moved = greeting();
  moved.on({ type: 'welcomed', socketId: 2, welcome: welcome(2) }, { type: 'journalled', socketId: 2 });
  t.match(moved.state, { phase: 'live', session: { socketId: 2 } });
});

t.test('an instance that stays silent is dropped, and any instance is tried', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'silent', socketId: 1 }).failed().failed().expire();
  t.equal(walk.state.phase, 'waiting');
  walk.on({ type: 'dead', socketId: 1 });
  t.match(walk.effects[0], { do: 'close', socketId: 1, reason: 'silent' });
  t.match(walk.state, { phase: 'waiting', leaveReason: 'no', session: undefined });
  t.same([walk.expire().host, walk.failed().host], ['b', 'a'], 'the silent instance comes last');
});

t.test('an agent that is told to go by a silent instance leaves even if it is heard again', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'silent', socketId: 1 }, { type: 'goaway', socketId: 1, withinMs: 3000, addresses: [] });
  walk.on({ type: 'heard', socketId: 1 });
  t.match(walk.state, { phase: 'connecting', leaveReason: 'must' });
  walk.on({ type: 'silent', socketId: 1 }).failed();
  t.not(walk.host, 'a', 'it never returns to the instance that it was told to leave');
});

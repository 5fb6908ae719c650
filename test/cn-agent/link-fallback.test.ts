import t from 'tap';
import { isOldStyle, wantsOldScheme } from '../../lib/cn-agent/fallback.ts';
import { A, B, C, refusal, Walk } from './link-walk.ts';

/** An old address answers, or one is simply not there. */
const old = (walk: Walk) => walk.on({ type: 'closed', socket: walk.socket, reason: 'HTTP 404', isOldStyle: true });
/** In a round that began with the name this has been. */
const resolved = (walk: Walk, ...addresses: (typeof A)[]) =>
  walk.state.phase === 'resolving' ? walk.on({ type: 'resolved', turn: walk.state.turn, addresses }) : walk;

/** On an old CNAPI alone, waiting to look again. */
const fallen = () => old(new Walk().connecting(A));

t.test('only an answer that knows no such route is of the older kind', async (t) => {
  const old = [101, 200, 301, 400, 403, 404, 405, 409, 426, 500, 502, 503, undefined].filter(isOldStyle);
  t.same(old, [404, 405, 426]);
});

t.test('when an agent falls back', async (t) => {
  const rows: [string, Parameters<typeof wantsOldScheme>[0], boolean][] = [
    ['all are of the older kind: at once', { known: [A, B], old: ['a:1', 'b:2'], failedRounds: 0 }, true],
    ['some, the first time: not yet', { known: [A, B], old: ['a:1'], failedRounds: 0 }, false],
    ['some, time after time', { known: [A, B], old: ['a:1'], failedRounds: 3 }, true],
    ['none, however long it lasts', { known: [A, B], old: [], failedRounds: 1000 }, false],
    ['nobody is known', { known: [], old: [], failedRounds: 1000 }, false],
  ];
  for (const [name, round, falls] of rows) t.equal(wantsOldScheme(round), falls, name);
});

t.test(
  'where all are of the older kind it falls back at once, and looks again in half a minute to a minute',
  async (t) => {
    const walk = new Walk().connecting(A, B);
    old(walk);
    t.equal(walk.state.phase, 'connecting', 'each is asked first');
    old(walk);
    t.equal(walk.state.phase, 'waiting', 'the name was asked just before');
    t.match(walk.effects, [{ do: 'fall-back' }, { do: 'arm', ms: 30_000 }]);
    t.match(walk.state, { scheme: 'old', session: undefined });
    walk.chance = 0.999;
    walk.expire();
    old(walk);
    old(walk);
    resolved(walk, A, B);
    t.match([walk.done.includes('fall-back'), walk.state.phase], [false, 'waiting'], 'it falls once');
    t.ok((walk.wait ?? 0) > 59_000);
  },
);

t.test('a new instance beside old ones wins in the first round', async (t) => {
  const walk = new Walk().connecting(A, B, C);
  old(walk);
  old(walk);
  walk.greet(1);
  t.match(walk.state, { phase: 'live', scheme: 'link', old: [], session: { epoch: 1 } });
});

t.test('new instances that are away for a moment are waited for, with the old ones there', async (t) => {
  const walk = new Walk().connecting(A, B);
  for (let round = 0; round < 3; round++) {
    old(walk).failed();
    resolved(walk, A, B);
    t.match(walk.state, { phase: 'waiting', scheme: 'link' }, `round ${round}`);
    t.ok((walk.wait ?? 0) < 30_000);
    walk.expire();
  }
  old(walk).failed();
  resolved(walk, A, B);
  t.match(walk.state, { phase: 'waiting', scheme: 'old' });
  t.ok((walk.wait ?? 0) <= 8000, 'and sought as before meanwhile');
});

t.test('one that asked to be left alone for a while is there all the same', async (t) => {
  const walk = new Walk().greeting(A, B);
  walk.on({ type: 'refused', socket: 1, refusal: refusal('full', { retryAfterMs: 2000 }) });
  old(walk);
  resolved(walk, A, B);
  t.match(walk.state, { phase: 'waiting', scheme: 'link' });
});

t.test('it leaves the older scheme when a session stands, not before', async (t) => {
  const walk = fallen();
  walk.expire();
  walk.on({ type: 'opened', socket: walk.socket });
  t.equal(walk.state.scheme, 'old');
  walk.on({ type: 'refused', socket: walk.socket, refusal: refusal('no-database') });
  t.match(walk.state, { scheme: 'old', session: undefined });
  resolved(walk, A).expire().greet(5);
  t.match([walk.state.scheme, walk.done.includes('enter')], ['link', true]);
});

t.test('a session that is lost to an instance rolled back falls back again', async (t) => {
  const walk = new Walk().live();
  walk.on({ type: 'closed', socket: 1, reason: 'gone' }).expire();
  resolved(old(walk), A);
  t.match([walk.state.scheme, walk.done], ['old', ['fall-back', 'arm']]);
});

t.test('somebody new behind the name is tried at once, those who are known are not', async (t) => {
  const walk = fallen();
  const before = walk.state;
  t.same(walk.on({ type: 'found', addresses: [A] }).state, before);
  walk.on({ type: 'found', addresses: [A, B] });
  t.match([walk.state.phase, walk.state.known], ['connecting', [A, B]]);
  const live = new Walk().live();
  t.same(live.on({ type: 'found', addresses: [C] }).state.known, [A], 'and only by an agent that has no link');
});

t.test('an agent that has a session does not fall back, whoever it is asked to try', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'goaway', socket: 1, withinMs: 60_000, addresses: [] });
  resolved(old(walk), B);
  t.match(walk.state, { scheme: 'link', session: { socket: 1 }, phase: 'waiting' });
});

t.test('another agent of the same uuid that lives is no reason to fall back', async (t) => {
  const walk = new Walk().connecting(A, B);
  for (let round = 0; round < 6; round++) {
    old(walk);
    walk.on({ type: 'opened', socket: walk.socket });
    walk.on({ type: 'refused', socket: walk.socket, refusal: refusal('incarnation-alive') });
    t.equal(walk.state.scheme, 'link');
    walk.expire();
  }
});

t.test('a short session that is lost while only the older kind is left is not waited out in silence', async (t) => {
  const walk = new Walk().connecting(A).greet(1);
  walk.on({ type: 'goaway', socket: 1, withinMs: 3000, addresses: [B] });
  resolved(old(walk), B);
  t.match(walk.state, { phase: 'waiting', session: { socket: 1 } });
  walk.on({ type: 'departure', socket: 1 });
  t.match([walk.state.phase, walk.state.scheme, walk.state.session], ['waiting', 'link', undefined]);
  t.ok((walk.wait ?? 0) <= 8000, 'the next round is near');
  resolved(old(walk.expire()), B);
  t.match([walk.state.scheme, walk.done[0]], ['old', 'fall-back']);
});

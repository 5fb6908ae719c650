import t from 'tap';
import { isLegacyCnapi, shouldFallBack } from '../../lib/agent/link/fallback.ts';
import { matchLists } from '../support/match-lists.ts';
import { A, B, C, refusal, Walk } from './link-walk.ts';

/** A legacy address answers. */
const old = (walk: Walk) => walk.on({ type: 'closed', socketId: walk.socket, reason: 'HTTP 404', isLegacyCnapi: true });
/** Answers the DNS query, in a round that did not begin with one. */
const resolved = (walk: Walk, ...addresses: (typeof A)[]) =>
  walk.state.phase === 'resolving'
    ? walk.on({ type: 'resolved', timerGeneration: walk.state.timerGeneration, addresses })
    : walk;

/** A link with only a legacy CNAPI, waiting for its next attempt. */
const fallen = () => old(new Walk().connecting(A));

t.test('only HTTP 404, 405 and 426 mean a legacy CNAPI', async (t) => {
  const old = [101, 200, 301, 400, 403, 404, 405, 409, 426, 500, 502, 503, undefined].filter(isLegacyCnapi);
  t.same(old, [404, 405, 426]);
});

t.test('an agent falls back depending on how many addresses are legacy and on failed rounds', async (t) => {
  const rows: [string, Parameters<typeof shouldFallBack>[0], boolean][] = [
    ['all are legacy: immediately', { known: [A, B], legacyEndpoints: ['a:1', 'b:2'], failedRounds: 0 }, true],
    ['some are legacy, first round: not yet', { known: [A, B], legacyEndpoints: ['a:1'], failedRounds: 0 }, false],
    ['some are legacy, after several rounds', { known: [A, B], legacyEndpoints: ['a:1'], failedRounds: 3 }, true],
    ['none is legacy, however many rounds fail', { known: [A, B], legacyEndpoints: [], failedRounds: 1000 }, false],
    ['no address is known', { known: [], legacyEndpoints: [], failedRounds: 1000 }, false],
  ];
  for (const [name, round, falls] of rows) t.equal(shouldFallBack(round), falls, name);
});

t.test('when all addresses are legacy, the agent falls back immediately and retries after 30 to 60 s', async (t) => {
  const walk = new Walk().connecting(A, B);
  old(walk);
  t.equal(walk.state.phase, 'connecting', 'each address is tried first');
  old(walk);
  t.equal(walk.state.phase, 'waiting', 'the name was resolved just before');
  matchLists(t, walk.effects, [{ do: 'fall-back' }, { do: 'arm', ms: 30_000 }]);
  t.match(walk.state, { scheme: 'legacy', session: undefined });
  walk.chance = 0.999;
  walk.expire();
  old(walk);
  old(walk);
  resolved(walk, A, B);
  matchLists(t, [walk.done.includes('fall-back'), walk.state.phase], [false, 'waiting'], 'it falls back only once');
  t.ok((walk.wait ?? 0) > 59_000);
});

t.test('one new instance among legacy ones gets the link in the first round', async (t) => {
  const walk = new Walk().connecting(A, B, C);
  old(walk);
  old(walk);
  walk.greet(1);
  matchLists(t, walk.state, { phase: 'live', scheme: 'link', legacyEndpoints: [], session: { epoch: 1 } });
});

t.test('an agent waits for new instances that are briefly away although legacy ones answer', async (t) => {
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
  t.match(walk.state, { phase: 'waiting', scheme: 'legacy' });
  t.ok((walk.wait ?? 0) <= 8000, 'it still retries the link soon');
});

t.test('an instance that asked the agent to wait prevents the fallback', async (t) => {
  const walk = new Walk().greeting(A, B);
  walk.on({ type: 'refused', socketId: 1, refusal: refusal('full', { retryAfterMs: 2000 }) });
  old(walk);
  resolved(walk, A, B);
  t.match(walk.state, { phase: 'waiting', scheme: 'link' });
});

t.test('the agent leaves the legacy protocol only when a session is established', async (t) => {
  const walk = fallen();
  walk.expire();
  walk.on({ type: 'opened', socketId: walk.socket });
  t.equal(walk.state.scheme, 'legacy');
  walk.on({ type: 'refused', socketId: walk.socket, refusal: refusal('no-database') });
  t.match(walk.state, { scheme: 'legacy', session: undefined });
  resolved(walk, A).expire().greet(5);
  matchLists(t, [walk.state.scheme, walk.done.includes('enter')], ['link', true]);
});

t.test('an agent falls back again when its instance is rolled back to a legacy CNAPI', async (t) => {
  const walk = new Walk().live();
  walk.on({ type: 'closed', socketId: 1, reason: 'gone' }).expire();
  resolved(old(walk), A);
  matchLists(t, [walk.state.scheme, walk.done], ['legacy', ['fall-back', 'arm']]);
});

t.test('a new address behind the name is tried immediately, a known one is not', async (t) => {
  const walk = fallen();
  const before = walk.state;
  t.same(walk.on({ type: 'found', addresses: [A] }).state, before);
  walk.on({ type: 'found', addresses: [A, B] });
  matchLists(t, [walk.state.phase, walk.state.known], ['connecting', [A, B]]);
  const live = new Walk().live();
  t.same(live.on({ type: 'found', addresses: [C] }).state.known, [A], 'only an agent without a link tries it');
});

t.test('an agent with a session does not fall back', async (t) => {
  const walk = new Walk().live(B);
  walk.on({ type: 'goaway', socketId: 1, withinMs: 60_000, addresses: [] });
  resolved(old(walk), B);
  t.match(walk.state, { scheme: 'link', session: { socketId: 1 }, phase: 'waiting' });
});

t.test('a refusal because another incarnation is alive causes no fallback', async (t) => {
  const walk = new Walk().connecting(A, B);
  for (let round = 0; round < 6; round++) {
    old(walk);
    walk.on({ type: 'opened', socketId: walk.socket });
    walk.on({ type: 'refused', socketId: walk.socket, refusal: refusal('incarnation-alive') });
    t.equal(walk.state.scheme, 'link');
    walk.expire();
  }
});

t.test('an agent that loses a brief session among legacy addresses retries soon, then falls back', async (t) => {
  const walk = new Walk().connecting(A).greet(1);
  walk.on({ type: 'goaway', socketId: 1, withinMs: 3000, addresses: [B] });
  resolved(old(walk), B);
  t.match(walk.state, { phase: 'waiting', session: { socketId: 1 } });
  walk.on({ type: 'departure', socketId: 1 });
  matchLists(t, [walk.state.phase, walk.state.scheme, walk.state.session], ['waiting', 'link', undefined]);
  t.ok((walk.wait ?? 0) <= 8000, 'the next round is near');
  resolved(old(walk.expire()), B);
  matchLists(t, [walk.state.scheme, walk.done[0]], ['legacy', 'fall-back']);
});

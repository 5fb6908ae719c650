/**
 * The link's state machine under random events that a driver could send. A ledger records what is
 * open and armed.
 */
import fc from 'fast-check';
import t from 'tap';
import type { Endpoint } from '../../lib/agent/link/endpoints.ts';
import { initialLink, type LinkEffect, type LinkEvent, type LinkState } from '../../lib/agent/link/link-state.ts';
import { stepLink } from '../../lib/agent/link/link-step.ts';
import type { InstanceAddress } from '../../lib/protocol/link/frames.ts';
import { A, B, C, refusal, uuidOf, welcome } from './link-walk.ts';

const LONGEST_HOLD_MS = 30_000;

/** What a driver has open and armed. Throws when that differs from what the state holds. */
class Ledger {
  state: LinkState = initialLink(0, 8000);
  readonly open = new Set<number>();
  armed: number | undefined;
  resolving: number | undefined;
  isJournalling = false;
  isRenewing = false;
  departure: number | undefined;
  isOld = false;

  on(event: LinkEvent, now: number, chance: number): void {
    const before = this.state;
    const { state, effects } = stepLink(before, event, { now, chance });
    this.state = state;
    if (event.type === 'closed') this.open.delete(event.socketId);
    if (before.session && before.session.socketId !== state.session?.socketId) this.departure = undefined;
    for (const effect of effects) this.#carryOut(effect);
    this.#check();
  }

  #carryOut(effect: LinkEffect): void {
    switch (effect.do) {
      case 'connect':
        this.open.add(effect.socketId);
        return;
      case 'close':
        this.open.delete(effect.socketId);
        return;
      case 'arm':
        this.armed = effect.timerGeneration;
        if (this.state.scheme === 'link' && effect.ms > LONGEST_HOLD_MS + this.state.reconnectMaxMs)
          throw new Error(`waits ${effect.ms} ms with no protocol in use`);
        return;
      case 'arm-departure':
        this.departure = effect.socketId;
        return;
      case 'resolve':
        this.resolving = effect.timerGeneration;
        return;
      case 'journal-epoch':
        this.isJournalling = true;
        return;
      case 'renew-journal':
        this.isRenewing = true;
        return;
      case 'enter':
        this.isOld = false;
        return;
      case 'fall-back':
        this.isOld = true;
        return;
      case 'greet':
        return;
      default:
        return effect satisfies never;
    }
  }

  #check(): void {
    const { phase, attempt, session, timerGeneration, leaveReason, scheme } = this.state;
    const attempted = phase === 'renewing' ? undefined : attempt?.socketId;
    const held = [session?.socketId, attempted].filter((socket) => socket !== undefined);
    const isSame = held.length === this.open.size && held.every((socket) => this.open.has(socket));
    if (!isSame) throw new Error(`open ${[...this.open]}, held ${held}`);
    if (this.isOld !== (scheme === 'legacy')) throw new Error('the protocol in use is not the one of the state');
    if (session && scheme === 'legacy') throw new Error('the legacy protocol beside a session');
    if (phase === 'live' && (!session || attempt || leaveReason === 'silent' || leaveReason === 'soft'))
      throw new Error(`live: session ${session?.socketId}, attempt ${attempt?.socketId}, move ${leaveReason}`);
    if (leaveReason === 'must' && this.departure !== session?.socketId)
      throw new Error('told to go, without a timer for the departure');
    const mayStand = phase === 'live' || phase === 'idle' || phase === 'stopped' || phase === 'connecting';
    if (!mayStand && this.armed !== timerGeneration && phase !== 'journalling' && phase !== 'renewing')
      throw new Error(`no timer ends phase ${phase}`);
  }
}

const chance = fc.double({ min: 0, max: 0.999, noNaN: true });
const some = fc.subarray<Endpoint>([A, B, C, { host: 'd', port: 4 }]);

interface Move {
  pick: number;
  /** Whether to take the step that leads to a session, or to the next one. */
  isOn: boolean;
  pauseMs: number;
  chance: number;
  addresses: Endpoint[];
  code: string;
  by: number;
}

const move: fc.Arbitrary<Move> = fc.record({
  pick: fc.nat(99),
  isOn: fc.nat(9).map((n) => n < 8),
  pauseMs: fc.constantFrom(0, 1, 100, 999, 2000, 5000, 40_000),
  chance,
  addresses: some,
  code: fc.constantFrom('superseded', 'stale-journal', 'incarnation-alive', 'full', 'draining', 'epoch-out-of-range'),
  by: fc.nat(3),
});

/** The event that leads to a session, or from one to the next. */
function onward({ state, resolving }: Ledger, addresses: InstanceAddress[], by: number): LinkEvent {
  const { phase, attempt, session, timerGeneration, epoch } = state;
  const socket = attempt?.socketId ?? session?.socketId ?? 0;
  if (phase === 'resolving') return { type: 'resolved', timerGeneration: resolving ?? timerGeneration, addresses };
  if (phase === 'connecting') return { type: 'opened', socketId: socket };
  if (phase === 'greeting')
    return { type: 'welcomed', socketId: socket, welcome: { ...welcome(epoch + 1, uuidOf(by)), addresses } };
  if (phase === 'journalling') return { type: 'journalled', socketId: socket };
  if (phase === 'renewing') return { type: 'renewed' };
  if (phase === 'live' && by > 1)
    return { type: 'goaway', socketId: socket, withinMs: by > 2 ? 3000 : undefined, addresses };
  if (phase === 'live') return { type: by > 0 ? 'silent' : 'steady', socketId: socket };
  return { type: 'expired', timerGeneration };
}

/**
 * The events that a driver may send now: about its sockets, timers and pending work, and late ones
 * where they are possible.
 */
function possible(ledger: Ledger, { isOn, addresses: endpoints, code, by }: Move): LinkEvent[] {
  const addresses = endpoints.map(({ host, port, uuid = uuidOf(4) }) => ({ host, port, uuid }));
  const { state, open, armed, resolving, departure } = ledger;
  const { phase, attempt, session, timerGeneration } = state;
  if (phase === 'idle') return [{ type: 'start' }];
  if (isOn) return [onward(ledger, addresses, by)];
  const events: LinkEvent[] = [{ type: 'found', addresses }];
  for (const socket of open) {
    const withinMs = by > 1 ? 3000 : undefined;
    events.push({
      type: 'closed',
      socketId: socket,
      reason: 'gone',
      isLegacyCnapi: by > 1,
      retryAfterMs: by > 2 ? 2000 : 0,
    });
    if (socket !== attempt?.socketId || phase !== 'connecting')
      events.push({ type: 'goaway', socketId: socket, withinMs, addresses });
    if (socket === session?.socketId) {
      for (const type of ['silent', 'heard', 'dead', 'steady'] as const) events.push({ type, socketId: socket });
      events.push({ type: 'silent', socketId: socket });
    }
  }
  if (attempt) {
    const { socketId: socket } = attempt;
    if (phase === 'connecting')
      events.push(
        { type: 'opened', socketId: socket },
        { type: 'begun', socketId: socket },
        { type: 'opened', socketId: socket },
      );
    if (phase === 'greeting' || phase === 'journalling') {
      const epoch = state.epoch + by;
      events.push({ type: 'welcomed', socketId: socket, welcome: { ...welcome(epoch, uuidOf(by)), addresses } });
      events.push({ type: 'refused', socketId: socket, refusal: refusal(code, { conn: state.conn + by, addresses }) });
    }
    if (phase === 'journalling')
      events.push({ type: 'journalled', socketId: socket }, { type: 'journalled', socketId: socket });
    if (phase === 'renewing') events.push({ type: 'renewed' });
  }
  if (armed === timerGeneration) events.push({ type: 'expired', timerGeneration });
  if (armed !== undefined) events.push({ type: 'expired', timerGeneration: armed });
  if (resolving !== undefined) events.push({ type: 'resolved', timerGeneration: resolving, addresses });
  if (departure !== undefined) events.push({ type: 'departure', socketId: departure });
  return events;
}

t.test('under random events no socket leaks, every state has a timer and no transition is illegal', async (t) => {
  fc.assert(
    fc.property(fc.array(move, { minLength: 40, maxLength: 120 }), fc.boolean(), (moves, stops) => {
      const ledger = new Ledger();
      let now = 0;
      for (const each of moves) {
        now += each.pauseMs;
        const events = possible(ledger, each);
        const event = events[each.pick % events.length];
        if (event) ledger.on(event, now, each.chance);
      }
      if (stops) ledger.on({ type: 'stop' }, now, 0);
      return !stops || ledger.open.size === 0;
    }),
    { numRuns: 2000 },
  );
  t.pass();
});

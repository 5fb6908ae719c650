/**
 * The waitlist's worlds: docs/design/waitlist.md, invariants I4 and I5. One queue, and callers
 * that create a ticket, wait for it on an instance, hold it and release it. The rows are model.ts;
 * the decisions of a wait are the product's.
 */
import {
  decideWaitOutcome,
  lifeStage,
  type TicketState,
  type TicketStatus,
  type WaitOutcome,
} from '../../../lib/control/waitlist/ticket.ts';
import { Watch } from '../../../lib/platform/waits/watches.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import type { Move, World } from '../explorer.ts';
import { advance, create, expire, find, newQueue, type Queue, release, remove, removeAll, renew } from './model.ts';

export interface Budget {
  /** The caller leaves without releasing its ticket. */
  die: number;
  /** The expiry of a ticket passes. */
  timeUp: number;
  delete: number;
  deleteAll: number;
  renew: number;
  lostHint: number;
}

const NO_FAULTS: Budget = { die: 0, timeUp: 0, delete: 0, deleteAll: 0, renew: 0, lostHint: 0 };

export interface Caller {
  phase: 'idle' | 'created' | 'waiting' | 'holding' | 'over' | 'dead';
  /** What its wait read last; null: nothing yet. */
  seen: { position: TicketState | null } | null;
  /**
   * Whether it has to read; and the results of reads in progress, in the order of their statements.
   */
  isUnread: boolean;
  reads: readonly (TicketStatus | null)[];
  hasHint: boolean;
  outcome: WaitOutcome | undefined;
}

export interface WaitlistState {
  queue: Queue;
  callers: readonly Caller[];
  /** Places of the current row's tickets, in the order in which they became active. */
  activated: readonly number[];
  left: Budget;
}

export interface Rules {
  advance: (queue: Queue) => Queue;
  decideWaitOutcome: typeof decideWaitOutcome;
  /** Registers, then reads. */
  readsAtFirst: boolean;
  pollsSlowly: boolean;
}

export const rules: Rules = { advance, decideWaitOutcome, readsAtFirst: true, pollsSlowly: true };

export interface WaitlistBounds {
  name: string;
  callers: number;
  faults: Partial<Budget>;
}

const IDLE: Caller = {
  phase: 'idle',
  seen: null,
  isUnread: false,
  reads: [],
  hasHint: false,
  outcome: undefined,
};

/** Two batches of reads may be in progress at once. */
const LANES = 2;

export function waitlistWorld(bounds: WaitlistBounds, product: Rules = rules): World<WaitlistState> {
  const { name, callers, faults } = bounds;
  const said = Object.entries(faults).map(([fault, times]) => `${fault} ${times}`);
  return {
    name,
    bounds: `1 queue, ${callers} tickets, each awaited; ${said.length === 0 ? 'no faults' : said.join(', ')}`,
    initial: [
      {
        queue: newQueue(),
        callers: Array.from({ length: callers }, () => IDLE),
        activated: [],
        left: { ...NO_FAULTS, ...faults },
      },
    ],
    moves: function* (state): Generator<Move<WaitlistState>> {
      for (const at of state.callers.keys()) yield* callerMoves(product, state, at);
      yield* others(product, state);
    },
    keyOf,
    complaintOf,
    isEnd: ({ callers: all, queue }) =>
      all.every(({ phase }) => phase === 'over' || phase === 'dead') && queue.lastPlace === 0,
    tell,
  };
}

const uuidOf = (at: number): string => `t${at + 1}`;

const change = (state: WaitlistState, at: number, fields: Partial<Caller>): WaitlistState => ({
  ...state,
  callers: state.callers.with(at, { ...(state.callers[at] as Caller), ...fields }),
});

/** The queue after a statement; callers that wait for a changed ticket get a hint. */
function withQueue(state: WaitlistState, queue: Queue): WaitlistState {
  const callers = state.callers.map((caller, at) => {
    const hasMoved = find(queue, uuidOf(at))?.status !== find(state.queue, uuidOf(at))?.status;
    return hasMoved && caller.phase === 'waiting' ? { ...caller, hasHint: true } : caller;
  });
  const became = queue.tickets.filter(
    ({ uuid, status }) => status === 'active' && find(state.queue, uuid)?.status !== 'active',
  );
  const former = queue.key === state.queue.key ? state.activated : [];
  return { ...state, queue, callers, activated: [...former, ...became.map(({ place }) => place)] };
}

function spend(state: WaitlistState, fault: keyof Budget): WaitlistState[] {
  if (state.left[fault] === 0) return [];
  return [{ ...state, left: { ...state.left, [fault]: state.left[fault] - 1 } }];
}

function* callerMoves(product: Rules, state: WaitlistState, at: number): Generator<Move<WaitlistState>> {
  const caller = state.callers[at] as Caller;
  const uuid = uuidOf(at);
  const { phase } = caller;
  if (phase === 'idle')
    yield {
      what: `caller ${at} creates ${uuid}`,
      to: change(withQueue(state, create(state.queue, uuid)), at, { phase: 'created' }),
    };
  if (phase === 'created')
    yield {
      what: `caller ${at} waits`,
      to: change(state, at, { phase: 'waiting', isUnread: product.readsAtFirst }),
    };
  if (phase === 'waiting') yield* waitMoves(product, state, at);
  if (phase === 'holding') {
    const released = withQueue(state, release(state.queue, uuid, product.advance));
    yield { what: `caller ${at} releases ${uuid}`, to: change(released, at, { phase: 'over' }) };
    for (const left of spend(state, 'renew'))
      yield { what: `caller ${at} renews ${uuid}`, to: withQueue(left, renew(state.queue, uuid)), isFault: true };
  }
  if (phase !== 'over' && phase !== 'dead' && phase !== 'idle')
    for (const left of spend(state, 'die'))
      yield { what: `caller ${at} dies`, to: change(left, at, { ...IDLE, phase: 'dead' }), isFault: true };
}

function* waitMoves(product: Rules, state: WaitlistState, at: number): Generator<Move<WaitlistState>> {
  const { isUnread, reads, hasHint } = state.callers[at] as Caller;
  if (isUnread && reads.length < LANES) {
    const standing = find(state.queue, uuidOf(at))?.status ?? null;
    yield {
      what: `${uuidOf(at)} is read: ${standing}`,
      to: change(state, at, { isUnread: false, reads: [...reads, standing] }),
    };
  }
  for (const [index, standing] of reads.entries())
    yield { what: `caller ${at} gets the result of a read: ${standing}`, to: receiveRead(product, state, at, index) };
  if (hasHint) {
    yield { what: `a hint reaches caller ${at}`, to: change(state, at, { hasHint: false, isUnread: true }) };
    for (const left of spend(state, 'lostHint'))
      yield { what: `a hint to caller ${at} is lost`, to: change(left, at, { hasHint: false }), isFault: true };
  }
  if (product.pollsSlowly && !isUnread && !hasHint && reads.length === 0)
    yield { what: `the slow poll has to read ${uuidOf(at)}`, to: change(state, at, { isUnread: true }) };
}

/** `Watch.move` and the question of `Waitlist.wait`, with the previous reading. */
function receiveRead(product: Rules, state: WaitlistState, at: number, index: number): WaitlistState {
  const { seen, reads } = state.callers[at] as Caller;
  const standing = reads[index] ?? undefined;
  let reached: WaitOutcome | undefined;
  let last: TicketState | null = seen?.position ?? null;
  const watch = new Watch<TicketStatus>({
    clock: CLOCK,
    isBefore: (next, before) => lifeStage(next) < lifeStage(before),
    id: uuidOf(at),
    wantsEvents: false,
    onClose: () => {},
  });
  if (seen !== null && seen.position !== null) watch.move(seen.position);
  void watch.until((position) => {
    last = position ?? null;
    reached = product.decideWaitOutcome(position);
    return reached !== undefined;
  }, {});
  watch.move(standing);
  const rest = reads.toSpliced(index, 1);
  const fields: Partial<Caller> = { reads: rest, seen: { position: last } };
  if (reached === undefined) return change(state, at, fields);
  const phase = reached === 'active' ? 'holding' : 'over';
  return change(state, at, { ...IDLE, phase, outcome: reached });
}

const CLOCK = new ManualClock();

function* others(product: Rules, state: WaitlistState): Generator<Move<WaitlistState>> {
  const { queue } = state;
  if (queue.tickets.some(({ isDue, status }) => isDue && (status === 'queued' || status === 'active')))
    yield { what: 'due tickets expire', to: withQueue(state, expire(queue, product.advance)) };
  for (const [index, ticket] of queue.tickets.entries()) {
    if (ticket.isDue || (ticket.status !== 'queued' && ticket.status !== 'active')) continue;
    const tickets = queue.tickets.with(index, { ...ticket, isDue: true });
    // Nobody renews a dead caller's ticket.
    const isDead = state.callers.some(({ phase }, at) => phase === 'dead' && uuidOf(at) === ticket.uuid);
    for (const left of isDead ? [state] : spend(state, 'timeUp'))
      yield {
        what: `${ticket.uuid} is due`,
        to: { ...left, queue: { ...queue, tickets } },
        isFault: !isDead,
      };
    for (const left of spend(state, 'delete'))
      yield {
        what: `${ticket.uuid} is deleted`,
        to: withQueue(left, remove(queue, ticket.uuid, product.advance)),
        isFault: true,
      };
  }
  if (queue.lastPlace > 0)
    for (const left of spend(state, 'deleteAll'))
      yield { what: 'all tickets are deleted', to: withQueue(left, removeAll(queue)), isFault: true };
}

function complaintOf({ queue, callers, activated }: WaitlistState): string | undefined {
  const active = queue.tickets.filter(({ status }) => status === 'active');
  if (active.length > 1) return `I4: ${active.map(({ uuid }) => uuid).join(' and ')} are active`;
  if (active.length === 0 && queue.tickets.some(({ status }) => status === 'queued'))
    return 'I4: tickets wait and none is active';
  if (activated.some((place, at) => place <= (activated[at - 1] ?? 0)))
    return `I4: active in the order ${activated.join(', ')}`;
  const wrong = callers.findIndex(
    ({ outcome }, at) => outcome !== undefined && !isTrue(outcome, find(queue, uuidOf(at))?.status),
  );
  return wrong < 0 ? undefined : `I5: caller ${wrong} got ${callers[wrong]?.outcome}, which was never true`;
}

/** The state may have advanced since it was read. */
function isTrue(outcome: WaitOutcome, status: TicketStatus | undefined): boolean {
  if (status === undefined) return true;
  return outcome === 'active' ? status !== 'queued' : outcome === status;
}

const keyOf = ({ queue, ...others }: WaitlistState): string =>
  JSON.stringify([queue.key, queue.lastPlace, queue.tickets.map((ticket) => Object.values(ticket).join()), others]);

function tell({ queue, callers }: WaitlistState): string {
  const tickets = queue.tickets.map(
    ({ uuid, place, status, isDue }) => `${uuid} ${place} ${status}${isDue ? ' due' : ''}`,
  );
  return [...tickets, ...callers.map(({ phase, outcome }) => `${phase}${outcome ? ` (${outcome})` : ''}`)].join(' | ');
}

/**
 * A duty is long-running work that one instance carries out and that another takes over when that
 * instance is gone: a row, and what its holder does with it. Pure; driven by `duty-keeper.ts`.
 *
 * The row. Each claim raises its generation, and (id, run, generation) is the fence of everything
 * that its holder writes:
 *
 *     created ──▶ waiting ──claim──▶ held by a run ──end──▶ ended
 *                    ▲                 │       ▲ │
 *                    └──handed over, ──┘       └─┘ claim, once that run is dead
 *                       or failed
 *
 * What the holder does:
 *
 *     working ──done──▶ settling: end ───────┐
 *        ├──failed──▶ settling: hand over ───┼──stored──▶ finished
 *        ├──leave──▶ leaving ──done──▶ end ──┤
 *        │              └──failed──▶ ────────┘
 *        └──lost──▶ lost ──done, failed──▶ finished
 *
 * `leave`: the instance drains. `lost`: its run is dead, or the row names another holder; from then
 * on it writes nothing.
 */

/** A duty as its present holder knows it. */
export interface HeldDuty {
  /** The id of the duty, and of the object that it works on. */
  id: string;
  kind: string;
  run: string;
  /** How often it was claimed. A handler may give up a duty that is claimed again and again. */
  generation: number;
  /** How often its work has failed with an error. */
  failures: number;
}

export interface DutyHandler {
  /**
   * Continues the work from what its rows say, and resolves when it is done. May be called again
   * with a later generation, on any instance. Each write is fenced (`cnapi_lock_duty`); a write
   * that is refused throws DutyLostError. Rejects soon after `signal` aborts, and for an error.
   * After a temporary error of the database it is called again with the same duty. Any other error
   * is a failure: the duty is handed over and continued after a pause.
   */
  carryOut(duty: HeldDuty, signal: AbortSignal): Promise<void>;
}

/** The handler of each kind of duty. */
export type DutyHandlers = Readonly<Record<string, DutyHandler>>;

export type DutySettlement = { kind: 'end' } | { kind: 'hand-over'; hasFailed: boolean };

export type HolderState =
  | { name: 'working' }
  | { name: 'leaving' }
  | { name: 'settling'; settlement: DutySettlement }
  | { name: 'lost' }
  | { name: 'finished' };

export type HolderEvent =
  | { type: 'done' }
  | { type: 'failed' }
  | { type: 'leave' }
  | { type: 'lost' }
  | { type: 'stored' };

/** `abort`: the work must stop immediately. `settle`: store this in the row, under the fence. */
export type HolderEffect = { do: 'abort'; reason: 'leave' | 'lost' } | { do: 'settle'; settlement: DutySettlement };

interface Step {
  state: HolderState;
  effects: HolderEffect[];
}

/** A handler throws it when the fence of one of its writes no longer holds. */
export class DutyLostError extends Error {
  override readonly name = 'DutyLostError';

  constructor(duty: Pick<HeldDuty, 'id' | 'generation'>) {
    super(`duty ${duty.id}: generation ${duty.generation} has another holder`);
  }
}

/** The holder of a duty received an event that its state cannot have. */
export class HolderTransitionError extends Error {
  override readonly name = 'HolderTransitionError';

  constructor(id: string, state: HolderState, event: HolderEvent) {
    super(`duty ${id}: ${event.type} in state ${state.name}`);
  }
}

/** @throws HolderTransitionError */
export function stepHolder(state: HolderState, event: HolderEvent, id: string): Step {
  switch (state.name) {
    case 'working':
      if (event.type === 'leave') return { state: { name: 'leaving' }, effects: [{ do: 'abort', reason: 'leave' }] };
      if (event.type === 'lost') return { state: { name: 'lost' }, effects: [{ do: 'abort', reason: 'lost' }] };
      if (event.type === 'done') return settling({ kind: 'end' });
      if (event.type === 'failed') return settling({ kind: 'hand-over', hasFailed: true });
      break;
    case 'leaving':
      if (event.type === 'leave') return same(state);
      if (event.type === 'lost') return same({ name: 'lost' });
      if (event.type === 'done') return settling({ kind: 'end' });
      if (event.type === 'failed') return settling({ kind: 'hand-over', hasFailed: false });
      break;
    case 'settling':
      if (event.type === 'leave') return same(state);
      if (event.type === 'lost' || event.type === 'stored') return same({ name: 'finished' });
      break;
    case 'lost':
      if (event.type === 'leave' || event.type === 'lost') return same(state);
      if (event.type === 'done' || event.type === 'failed') return same({ name: 'finished' });
      break;
    case 'finished':
      // The answer about a settlement may come after the loss.
      if (event.type === 'leave' || event.type === 'lost' || event.type === 'stored') return same(state);
      break;
    default:
      return state satisfies never;
  }
  throw new HolderTransitionError(id, state, event);
}

const same = (state: HolderState): Step => ({ state, effects: [] });

const settling = (settlement: DutySettlement): Step => ({
  state: { name: 'settling', settlement },
  effects: [{ do: 'settle', settlement }],
});

export interface DutyBacklog {
  /** Duties that have not ended. */
  unfinished: number;
  /** Live instances that do not drain. */
  instances: number;
  /**
   * Duties free for so long that other instances do not seem to take their share (`FreeDuties`).
   */
  overdue: number;
}

/**
 * Measures how long this instance has seen the same duties free. It uses the instance's own clock,
 * because the database's clock may be set back or forward.
 */
export class FreeDuties {
  readonly #patienceMs: number;
  #firstSeenAt = new Map<string, number>();

  constructor(patienceMs: number) {
    this.#patienceMs = patienceMs;
  }

  /**
   * `keys`: id and generation of the duties that are free now. Returns how many of them have been
   * free for too long.
   */
  overdue(keys: readonly string[], now: number): number {
    this.#firstSeenAt = new Map(keys.map((key) => [key, this.#firstSeenAt.get(key) ?? now]));
    return [...this.#firstSeenAt.values()].filter((firstSeenAt) => now - firstSeenAt >= this.#patienceMs).length;
  }
}

export interface InstanceLoad {
  /** How many it holds. */
  held: number;
  limit: number;
  isDraining: boolean;
}

/**
 * How many duties an instance takes now, so that those of a dead instance spread over the living
 * ones: its share, or those that the others leave, if these are more. An instance that drains takes
 * some only if all do.
 */
export function roomFor(
  { held, limit, isDraining }: InstanceLoad,
  { unfinished, instances, overdue }: DutyBacklog,
): number {
  if (isDraining && instances > 0) return 0;
  const share = Math.ceil(unfinished / Math.max(1, instances));
  return Math.max(0, Math.min(limit - held, Math.max(share - held, overdue)));
}

const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;

/** The pause before a duty whose work has failed is free again. It doubles with each failure. */
export function pauseAfterMs(failures: number): number {
  return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(failures, 10));
}

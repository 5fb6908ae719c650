/**
 * Walks every interleaving of a small world, breadth first, each state once (states are known by
 * the hash of their key). Checks what must hold in every state and over every step, and that from
 * every state an end can be reached without a further fault. What it finds comes with the shortest
 * way there. A world is data and pure functions; its steps are the product's own.
 */
import { hash } from 'node:crypto';
import { cpuUsage } from 'node:process';

export interface World<State> {
  name: string;
  /** The contents of the world, and how often each fault may happen. */
  bounds: string;
  initial: readonly State[];
  /** Everything that can happen next, always in the same order. */
  moves(state: State): Iterable<Move<State>>;
  /** Two states with the same key have the same future. */
  keyOf(state: State): string;
  /** What is wrong with this state, or with the step to it; undefined if nothing is. */
  complaintOf(state: State, from?: State): string | undefined;
  /** Everything that was started is finished, and correctly. */
  isEnd(state: State): boolean;
  /** A line about the state for a trace. */
  tell(state: State): string;
}

export interface Move<State> {
  what: string;
  to: State;
  /** True if reaching an end must not depend on this step. */
  isFault?: boolean;
}

export interface Exploration {
  states: number;
  transitions: number;
  /** Steps from the beginning to the state that is farthest from it. */
  depth: number;
  ends: number;
  /** CPU time of this process during the exploration, of all its threads. */
  cpuMs: number;
  defect: Defect | undefined;
}

export interface Defect {
  complaint: string;
  /** The number of steps to it. */
  length: number;
  /** A line for each step and the state after it. */
  trace: string[];
}

export class WorldTooLargeError extends Error {
  constructor(name: string, states: number) {
    super(`world ${name}: more than ${states} states, and not all of them seen: make it smaller or the bound larger`);
    this.name = 'WorldTooLargeError';
  }
}

/** @throws WorldTooLargeError, because unexplored states prove nothing. */
export function explore<State>(world: World<State>, maxStates: number): Exploration {
  return new Walk(world, maxStates).explore();
}

interface Seen<State> {
  state: State;
  index: number;
}

class Walk<State> {
  readonly #world: World<State>;
  readonly #maxStates: number;
  readonly #indexes = new Map<string, number>();
  /**
   * The state from which each state was first reached, and the number of the move, by the index of
   * the state; -1 for an initial state.
   */
  readonly #parents: number[] = [];
  readonly #ordinals: number[] = [];
  /** Steps that are not faults, backwards: pairs of to and from. */
  readonly #steps = new Pairs();
  readonly #ends: number[] = [];
  #transitions = 0;
  #depth = 0;
  #next: Seen<State>[] = [];
  #defect: Defect | undefined;

  constructor(world: World<State>, maxStates: number) {
    this.#world = world;
    this.#maxStates = maxStates;
  }

  explore(): Exploration {
    const before = cpuUsage();
    this.#walk();
    if (this.#defect === undefined) this.#findHopeless();
    return {
      states: this.#parents.length,
      transitions: this.#transitions,
      depth: this.#depth,
      ends: this.#ends.length,
      cpuMs: cpuMsSince(before),
      defect: this.#defect,
    };
  }

  #walk(): void {
    for (const [ordinal, state] of this.#world.initial.entries()) {
      this.#arrive(state, { parent: -1, ordinal });
      if (this.#defect !== undefined) return;
    }
    while (this.#next.length > 0) {
      const level = this.#next;
      this.#next = [];
      for (const seen of level) {
        this.#leave(seen);
        if (this.#defect !== undefined) return;
      }
      if (this.#next.length > 0) this.#depth += 1;
    }
  }

  /** An illegal step throws in the product, and is a defect like any other. */
  #leave({ state, index }: Seen<State>): void {
    let ordinal = 0;
    try {
      for (const { to, isFault } of this.#world.moves(state)) {
        this.#transitions += 1;
        const reached = this.#arrive(to, { parent: index, ordinal, from: state });
        if (this.#defect !== undefined) return;
        if (isFault !== true) this.#steps.add(reached, index);
        ordinal += 1;
      }
    } catch (error) {
      if (!(error instanceof Error) || error instanceof WorldTooLargeError) throw error;
      const trace = [...this.#traceTo(index), `next: ${error.stack ?? error.message}`];
      this.#defect = { complaint: `${error.name}: ${error.message}`, length: this.#lengthOf(index) + 1, trace };
    }
  }

  #arrive(state: State, { parent, ordinal, from }: { parent: number; ordinal: number; from?: State }): number {
    const key = hash('md5', this.#world.keyOf(state), 'base64');
    const known = this.#indexes.get(key);
    const index = known ?? this.#parents.length;
    if (known === undefined) {
      if (index >= this.#maxStates) throw new WorldTooLargeError(this.#world.name, this.#maxStates);
      this.#indexes.set(key, index);
      this.#parents.push(parent);
      this.#ordinals.push(ordinal);
      this.#next.push({ state, index });
      if (this.#world.isEnd(state)) this.#ends.push(index);
    }
    const complaint = this.#world.complaintOf(state, from);
    if (complaint !== undefined) this.#complain(complaint, { parent, ordinal });
    return index;
  }

  /**
   * Ends with the step that was found to be wrong, which need not be the one that first led to its
   * state.
   */
  #complain(complaint: string, { parent, ordinal }: { parent: number; ordinal: number }): void {
    const way = [...this.#wayTo(parent), ordinal];
    this.#defect = { complaint, length: way.length - 1, trace: [...this.#tellWay(way), `wrong: ${complaint}`] };
  }

  /** States are in the order of their distance, so the first one left is the nearest. */
  #findHopeless(): void {
    const isHopeful = new Uint8Array(this.#parents.length);
    const { offsets, sources } = this.#steps.byTarget(this.#parents.length);
    const pending = [...this.#ends];
    for (const end of pending) isHopeful[end] = 1;
    for (let to = pending.pop(); to !== undefined; to = pending.pop()) {
      for (let at = offsets[to] ?? 0; at < (offsets[to + 1] ?? 0); at += 1) {
        const from = sources[at] ?? 0;
        if (isHopeful[from] === 1) continue;
        isHopeful[from] = 1;
        pending.push(from);
      }
    }
    const hopeless = isHopeful.indexOf(0);
    if (hopeless < 0) return;
    const complaint = 'no end can be reached from here without a further fault';
    const trace = [...this.#traceTo(hopeless), `wrong: ${complaint}`];
    this.#defect = { complaint, length: this.#lengthOf(hopeless), trace };
  }

  #traceTo(index: number): string[] {
    return this.#tellWay(this.#wayTo(index));
  }

  #lengthOf(index: number): number {
    return this.#wayTo(index).length - 1;
  }

  /** Numbers of moves, beginning with that of the initial state. */
  #wayTo(index: number): number[] {
    const way: number[] = [];
    for (let at = index; at >= 0; at = this.#parents[at] ?? -1) way.push(this.#ordinals[at] ?? 0);
    return way.reverse();
  }

  /** States are not stored, so the path is walked again. */
  #tellWay([first = 0, ...ordinals]: number[]): string[] {
    let state = this.#world.initial[first] as State;
    const lines = [`at first: ${this.#world.tell(state)}`];
    for (const [step, ordinal] of ordinals.entries()) {
      const move = [...this.#world.moves(state)][ordinal] as Move<State>;
      lines.push(`${step + 1}. ${move.what}${move.isFault ? ' (fault)' : ''}`, `     ${this.#world.tell(move.to)}`);
      state = move.to;
    }
    return lines;
  }
}

/** A large list of pairs of numbers. */
class Pairs {
  #targets = new Int32Array(1 << 16);
  #sources = new Int32Array(1 << 16);
  #count = 0;

  add(target: number, source: number): void {
    if (this.#count === this.#targets.length) {
      this.#targets = doubled(this.#targets);
      this.#sources = doubled(this.#sources);
    }
    this.#targets[this.#count] = target;
    this.#sources[this.#count] = source;
    this.#count += 1;
  }

  /** The sources of target n are `sources` from `offsets[n]` to before `offsets[n + 1]`. */
  byTarget(targets: number): { offsets: Int32Array; sources: Int32Array } {
    const offsets = new Int32Array(targets + 2);
    for (let at = 0; at < this.#count; at += 1) bump(offsets, (this.#targets[at] ?? 0) + 2);
    for (let target = 1; target < offsets.length; target += 1) {
      offsets[target] = (offsets[target] ?? 0) + (offsets[target - 1] ?? 0);
    }
    const sources = new Int32Array(this.#count);
    for (let at = 0; at < this.#count; at += 1) {
      sources[bump(offsets, (this.#targets[at] ?? 0) + 1)] = this.#sources[at] ?? 0;
    }
    return { offsets, sources };
  }
}

function bump(numbers: Int32Array, at: number): number {
  const before = numbers[at] ?? 0;
  if (at < numbers.length) numbers[at] = before + 1;
  return before;
}

function doubled(numbers: Int32Array): Int32Array<ArrayBuffer> {
  const larger = new Int32Array(numbers.length * 2);
  larger.set(numbers);
  return larger;
}

function cpuMsSince(before: NodeJS.CpuUsage): number {
  const { user, system } = cpuUsage(before);
  return (user + system) / 1000;
}

/**
 * What the checker's rules ask about a run: what was disturbed when, how late a process may have
 * been because the machine was busy, and the other clocks. Pure.
 */
import type { Entry, Evidence, Fault, Op, StoredTask } from './history.ts';

/**
 * After a fault has ended and the zone has recovered, its last effects may still be on their way.
 */
const AFTERMATH_MS = 1_000;
/** Starvation of this length within a window makes a bound in it void. */
const MOST_STARVED_MS = 3_000;

export class World {
  readonly ops: Op[];
  readonly faults: Fault[];
  readonly evidence: Evidence;
  readonly tasks: ReadonlyMap<string, StoredTask>;
  /** When the last entry was written. */
  readonly endAt: number;
  readonly #clocks: Extract<Entry, { kind: 'clock' }>[];
  /** The times of starvation, in the order in which they began. */
  readonly #starved: Extract<Entry, { kind: 'starved' }>[];
  readonly #longestLookMs: number;

  constructor(evidence: Evidence) {
    const { history } = evidence;
    this.evidence = evidence;
    this.ops = entriesOf(history, 'op');
    this.faults = entriesOf(history, 'fault');
    this.#clocks = entriesOf(history, 'clock');
    this.#starved = entriesOf(history, 'starved').sort((a, b) => a.from - b.from);
    this.#longestLookMs = this.#starved.reduce((longest, { from, to }) => Math.max(longest, to - from), 0);
    this.tasks = new Map(evidence.stored.tasks.map((task) => [task.id, task]));
    this.endAt = [...this.ops.map(({ overAt }) => overAt), ...this.faults.map(({ to }) => to)].reduce(
      (latest, at) => Math.max(latest, at),
      0,
    );
  }

  entries<Kind extends Entry['kind']>(kind: Kind): Extract<Entry, { kind: Kind }>[] {
    return entriesOf(this.evidence.history, kind);
  }

  /** A time of the machine's wall clock, which the database uses as well, in the harness's time. */
  fromWall(wall: number): number {
    const { at, wall: shown } = this.#nearest((clock) => Math.abs(clock.wall - wall));
    return at + wall - shown;
  }

  fromUptime(uptime: number): number {
    const { at, uptime: shown } = this.#nearest((clock) => Math.abs(clock.uptime - uptime));
    return at + uptime - shown;
  }

  /** Faults that were present, or not recovered from, at some time of the window. */
  faultsIn(from: number, to: number): Fault[] {
    return this.faults.filter((fault) => fault.from <= to && from <= goneAt(fault));
  }

  /**
   * What makes `unknown` true for the server in that window, or did until a moment before. During
   * two simultaneous faults, one of which affects what holds sessions, that may be any fault.
   */
  excuseOf(server: string, from: number, to = from): Fault | undefined {
    const those = this.faultsIn(from, to);
    const together = (fault: Fault) =>
      those.some((other) => other !== fault && other.from <= fault.to && fault.from <= other.to);
    return those.find((fault) => fault.servers.includes(server) || (touchesSessions(fault) && together(fault)));
  }

  /**
   * The part of the window with faults that affected the server's agent, or what holds sessions.
   */
  disturbedMs(server: string, from: number, to: number): number {
    let [sum, counted] = [0, from];
    const those = this.faultsIn(from, to).filter((fault) => fault.servers.includes(server) || touchesSessions(fault));
    for (const fault of those.sort((a, b) => a.from - b.from)) {
      const [begun, gone] = [Math.max(counted, fault.from), Math.min(to, goneAt(fault))];
      if (gone > begun) sum += gone - begun;
      counted = Math.max(counted, gone);
    }
    return sum;
  }

  /** Why a caller of that instance may have had to wait, or had no answer, in that window. */
  disturbanceOf(instance: number, from: number, to: number): Fault | undefined {
    return this.faultsIn(from, to).find((fault) => {
      if (fault.part === 'postgres') return true;
      const isThere = fault.instance === instance;
      if (fault.part === 'instance') return isThere;
      return fault.part === 'line' && isThere && (fault.line === 'callers' || fault.line === 'database');
    });
  }

  /** The longest time within the window that the harness or any process was kept from running. */
  starvedMs(from: number, to: number): number {
    const byWho = new Map<string, number>();
    for (let next = firstFrom(this.#starved, from - this.#longestLookMs); next < this.#starved.length; next++) {
      const each = this.#starved[next];
      if (each === undefined || each.from > to) break;
      if (from <= each.to) byWho.set(each.who, (byWho.get(each.who) ?? 0) + each.ms);
    }
    return Math.max(0, ...byWho.values());
  }

  /**
   * Whether agents that were told to return later were awaited: then those of a dead instance have
   * more time.
   */
  wasDeferring(from: number, to: number): boolean {
    return this.entries('deferring').some(({ at }) => from <= at && at <= to);
  }

  /**
   * The slack for the machine in a bound of this window; undefined when the machine was too busy
   * for any.
   */
  slackMs(from: number, to: number): number | undefined {
    const starved = this.starvedMs(from, to);
    return starved > MOST_STARVED_MS ? undefined : 1_500 + 3 * starved;
  }

  #nearest(distance: (clock: Extract<Entry, { kind: 'clock' }>) => number) {
    let best = { clock: { at: 0, wall: 0, uptime: 0 }, distance: Number.POSITIVE_INFINITY };
    for (const clock of this.#clocks) {
      const far = distance(clock);
      if (far < best.distance) best = { clock, distance: far };
    }
    return best.clock;
  }
}

/** The index of the first that begins at that time or later; there may be tens of thousands. */
function firstFrom(sorted: readonly { from: number }[], time: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((sorted[middle]?.from ?? 0) < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

function touchesSessions({ part, line }: Fault): boolean {
  return part === 'instance' || part === 'postgres' || line === 'agents' || line === 'database';
}

export function goneAt({ settledAt, to }: Fault): number {
  return (settledAt ?? to + 120_000) + AFTERMATH_MS;
}

function entriesOf<Kind extends Entry['kind']>(
  history: readonly Entry[],
  kind: Kind,
): Extract<Entry, { kind: Kind }>[] {
  return history.filter((entry): entry is Extract<Entry, { kind: Kind }> => entry.kind === kind);
}

export function groupBy<Item>(items: Iterable<Item>, keyOf: (item: Item) => string | undefined): Map<string, Item[]> {
  const groups = new Map<string, Item[]>();
  for (const item of items) {
    const key = keyOf(item);
    if (key === undefined) continue;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  }
  return groups;
}

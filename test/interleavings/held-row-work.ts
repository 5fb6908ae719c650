/** What a test of a locked row needs for each piece of work, and what all of them share. */
import type { Test } from 'tap';
import { silentLogger } from '../../lib/platform/log.ts';
import { systemClock } from '../../lib/platform/time/clock.ts';

export const ports = { clock: systemClock, log: silentLogger };
export const NAMES = ['first', 'held', 'third', 'last'];
export const HELD = 1;
/** The objects whose rows are not locked, before and after the locked one. */
export const others = <Item>(items: readonly Item[]): Item[] => items.filter((_, n) => n !== HELD);
export const heldOf = <Item>(items: readonly Item[]): Item => items[HELD] as Item;

/** One piece of work on four objects, started while a row of the second is locked. */
export interface Work {
  name: string;
  /** The rows that are locked, by table: a condition on the table's rows. */
  holds: Record<string, string>;
  begin: () => void;
  /** True when the work on the others is done. */
  isDone: () => Promise<boolean>;
  /** True when the work on the locked one is done too. */
  isWhole: () => Promise<boolean>;
}

/** Work on four objects, with a function that tells whether each is done. */
export function workOn<Thing>(
  things: readonly Thing[],
  work: Pick<Work, 'name' | 'holds' | 'begin'> & { isSo: (thing: Thing) => Promise<boolean> },
): Work {
  const { isSo, ...rest } = work;
  const areSo = async (some: readonly Thing[]) => (await Promise.all(some.map(isSo))).every((one) => one);
  return { ...rest, isDone: () => areSo(others(things)), isWhole: () => areSo(things) };
}

/** Repeats skipped work as its driver does at its next turn. A turn that fails is repeated. */
export function turns(t: Test, work: () => Promise<unknown>): () => void {
  let isOver = false;
  t.teardown(() => {
    isOver = true;
  });
  return () => {
    void (async () => {
      while (!isOver) {
        await work().catch(() => undefined);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    })();
  };
}

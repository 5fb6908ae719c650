/** What a test of a held row needs of each piece of work, and what all of them share. */
import type { Test } from 'tap';
import { systemClock } from '../../lib/platform/clock.ts';
import { silentLogger } from '../../lib/platform/log.ts';

export const ports = { clock: systemClock, log: silentLogger };
export const NAMES = ['first', 'held', 'third', 'last'];
export const HELD = 1;
/** Of the others; of two in their order the first may hide what the second shows. */
export const others = <Item>(items: readonly Item[]): Item[] => items.filter((_, n) => n !== HELD);
export const heldOf = <Item>(items: readonly Item[]): Item => items[HELD] as Item;

/** One piece of work on four objects: begun while a row of the second is held. */
export interface Work {
  name: string;
  /** Rows that are held, by table: a condition on the table's rows. */
  holds: Record<string, string>;
  begin: () => void;
  /** The others are done. */
  isDone: () => Promise<boolean>;
  /** So is the one that was held. */
  isWhole: () => Promise<boolean>;
}

/** Work on four things, told by whether each is done. */
export function workOn<Thing>(
  things: readonly Thing[],
  work: Pick<Work, 'name' | 'holds' | 'begin'> & { isSo: (thing: Thing) => Promise<boolean> },
): Work {
  const { isSo, ...rest } = work;
  const areSo = async (some: readonly Thing[]) => (await Promise.all(some.map(isSo))).every((one) => one);
  return { ...rest, isDone: () => areSo(others(things)), isWhole: () => areSo(things) };
}

/** Does again, as its driver does at its next turn, what was skipped; a turn that fails is repeated. */
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

/** What a part of the fuzzing is: how its inputs are made, how one is fed, and what must still be well afterwards. */
import type fc from 'fast-check';
import type { Vitals } from './probe.ts';
import type { Target } from './target.ts';

export interface Part {
  name: string;
  about: string;
  /** Of a thousand inputs, how many are its own. */
  share: number;
  /** Of the quick form's inputs in `npm test`. */
  quick: number;
  /** `start` starts a target of its own, which the feeder stops; parts that need none do not call it. */
  open(start: () => Promise<Target>): Promise<Feeder>;
}

export interface Feeder<Value = unknown> {
  arbitrary: fc.Arbitrary<Value>;
  /** Fed first, whatever the seed. */
  examples?: readonly Value[];
  /** So many are fed at the same time. */
  lanes: number;
  /** Values of one batch, where one takes long; such are not shrunk. */
  batch?: number;
  /**
   * Feeds one value; returns how many inputs that was. @throws Wrong, or whatever the product threw, when a rule is broken
   */
  feed(value: Value, lane: number): Promise<number> | number;
  /** What is fed is never quite at rest, or not yet warm: by so much more may it differ. */
  slack?: Partial<Vitals>;
  /** Of the process that is fed, at rest. */
  vitals(): Promise<Vitals>;
  /** Called now and then, and at the end: what is wrong beside the answers. */
  inspect(): Promise<string[]>;
  close(): Promise<void>;
}

/** A rule of the fuzzing was broken. */
export class Wrong extends Error {
  /** Which rule: what breaks the same one is the same finding. */
  readonly kind: string;

  constructor(message: string, kind = message) {
    super(message);
    this.name = 'Wrong';
    this.kind = kind;
  }
}

/** Forgets what a feeder is fed, so that feeders of all kinds fit one table. */
export function feeder<Value>(definition: Feeder<Value>): Feeder {
  return definition as unknown as Feeder;
}

/**
 * A part of the fuzzing: how its inputs are generated, how one is fed, and what must hold
 * afterwards.
 */
import type fc from 'fast-check';
import type { Vitals } from './probe.ts';
import type { Target } from './target.ts';

export interface Part {
  name: string;
  about: string;
  /** The number of its inputs in a thousand. */
  share: number;
  /** The number of its inputs in the short form in `npm test`. */
  quick: number;
  /**
   * `start` starts a target of its own, which the feeder stops; parts without a target do not call
   * it.
   */
  open(start: () => Promise<Target>): Promise<Feeder>;
}

export interface Feeder<Value = unknown> {
  arbitrary: fc.Arbitrary<Value>;
  /** Fed first, whatever the seed. */
  examples?: readonly Value[];
  /** The number of values that are fed at the same time. */
  lanes: number;
  /** Values per batch, if one takes long; these are not shrunk. */
  batch?: number;
  /**
   * Feeds one value; returns the number of inputs in it. @throws Wrong, or any error of the
   * product, when a rule is broken
   */
  feed(value: Value, lane: number): Promise<number> | number;
  /**
   * How much more the vitals may differ, because the process is never quite idle or not yet warm.
   */
  slack?: Partial<Vitals>;
  /** The vitals of the process under test, when idle. */
  vitals(): Promise<Vitals>;
  /** Called now and then, and at the end: problems other than wrong answers. */
  inspect(): Promise<string[]>;
  close(): Promise<void>;
}

/** A rule of the fuzzing was broken. */
export class Wrong extends Error {
  /** Which rule: two violations of the same rule are one finding. */
  readonly kind: string;

  constructor(message: string, kind = message) {
    super(message);
    this.name = 'Wrong';
    this.kind = kind;
  }
}

/** Forgets the type of a feeder's values, so that all feeders fit into one table. */
export function feeder<Value>(definition: Feeder<Value>): Feeder {
  return definition as unknown as Feeder;
}

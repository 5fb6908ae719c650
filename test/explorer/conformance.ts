/**
 * Compares a row that a small world models with the product's statements: both execute the same
 * random operations, and after each the answers and the rows must be equal.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Test } from 'tap';
import { Dice } from './dice.ts';

export interface Answers {
  real: unknown;
  model: unknown;
}

export interface Conformance<Scene> {
  seed: number;
  sequences: number;
  steps: number;
  /** An empty database, and the initial state of the model. */
  begin(dice: Dice): Promise<Scene>;
  operations: Readonly<Record<string, (scene: Scene) => Promise<Answers>>>;
  /** Operations that are three times as frequent, so that others have rows to work on. */
  often?: readonly string[];
  /** The stored rows, in the model's terms. */
  rows(scene: Scene): Promise<Answers>;
}

export async function checkConformance<Scene>(t: Test, conformance: Conformance<Scene>): Promise<void> {
  const { seed, sequences, steps, operations } = conformance;
  const dice = new Dice(seed);
  const names = Object.keys(operations);
  const lots = [...names, ...(conformance.often ?? []), ...(conformance.often ?? [])];
  const counts = new Map(names.map((name) => [name, 0]));
  for (let sequence = 0; sequence < sequences; sequence += 1) {
    const scene = await conformance.begin(dice);
    const done: string[] = [];
    for (let step = 0; step < steps; step += 1) {
      const name = dice.of(lots);
      done.push(name);
      counts.set(name, (counts.get(name) ?? 0) + 1);
      const answers = (await operations[name]?.(scene)) ?? { real: undefined, model: undefined };
      const rows = await conformance.rows(scene);
      for (const [what, { real, model }] of Object.entries({ answers, rows })) {
        if (isDeepStrictEqual(real, model)) continue;
        t.same(real, model, `${what} after sequence ${sequence} of seed ${seed}: ${done.join(', ')}`);
        return;
      }
    }
  }
  const said = [...counts].map(([name, count]) => `${name} ${count}`).join(', ');
  t.pass(`${sequences * steps} operations with equal results: ${said}`);
}

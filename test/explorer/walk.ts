/**
 * Worlds as tests: the product's worlds must have no defect, and the deliberate defects must be
 * found.
 */
import t from 'tap';
import { COMPUTING_TIMEOUT_MS } from '../support/patience.ts';
import type { BrokenWorld, Plan } from './plan.ts';

t.setTimeout(COMPUTING_TIMEOUT_MS);

export function walkAll(plans: readonly Plan[]): void {
  for (const { name, bounds, explore } of plans) {
    t.test(`${name}: ${bounds}`, async (t) => {
      const { states, transitions, depth, ends, cpuMs, defect } = explore();
      if (defect !== undefined) t.comment(defect.trace.join('\n'));
      t.equal(defect?.complaint, undefined, 'no state is wrong, and an end can be reached from each');
      t.ok(ends > 0, 'some states are ends');
      t.comment(`${states} states, ${transitions} transitions, depth ${depth}, ${ends} ends, ${Math.round(cpuMs)} ms`);
    });
  }
}

export function findAll(broken: readonly BrokenWorld[]): void {
  for (const { defect, run, complaint } of broken) {
    t.test(`found: ${defect}`, async (t) => {
      const found = run().defect;
      t.match(found?.complaint, complaint, 'the defect is found');
      t.equal(found?.trace.filter((line) => /^\d+\. /.test(line)).length, found?.length, 'with every step to it');
      t.comment(`${found?.length} steps: ${found?.complaint}`);
    });
  }
}

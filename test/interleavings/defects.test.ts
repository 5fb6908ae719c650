/**
 * Shows that the harness can fail: each deliberate defect is found by the pairs of its statements.
 * One violation is enough; with INTERLEAVINGS_ALL set all pairs run, and a comment says how many
 * find it. INTERLEAVINGS_DEFECT names one of them.
 */
import t from 'tap';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { applyDefect, type Defect, defects } from './defects.ts';
import { IN_TURN } from './interleaving.ts';
import { Lane } from './lane.ts';
import { planPairs, runPairs, sentence, surveyAll } from './plan.ts';
import { writingCalls } from './statements.ts';

const LANES = 3;

t.setTimeout(FILE_TIMEOUT_MS);

t.test('each deliberate defect is found', async (t) => {
  const lanes = await Promise.all(Array.from({ length: LANES }, () => Lane.open(t)));
  const footprints = await surveyAll(lanes, writingCalls);

  /**
   * The pairs of the calls concerned, planned again: with a lock removed there is one place less to
   * stop at.
   */
  async function pairsOf({ statements }: Defect) {
    const concerned = writingCalls.filter(({ statement }) => statements.includes(statement));
    const changed = await surveyAll(lanes, concerned);
    const all = new Map(
      [...footprints].map(([world, calls]) => [world, new Map([...calls, ...(changed.get(world) ?? [])])]),
    );
    const pairs = planPairs(all);
    return pairs.filter(({ first, second }) => concerned.includes(first) || concerned.includes(second));
  }

  const only = process.env.INTERLEAVINGS_DEFECT;
  for (const defect of defects.filter(({ name }) => only === undefined || name === only)) {
    await t.test(defect.name, async (t) => {
      const undo = await Promise.all(lanes.map((lane) => applyDefect(lane, defect)));
      try {
        const pairs = await pairsOf(defect);
        const isEnough = (found: readonly unknown[]) => found.length > 0 && process.env.INTERLEAVINGS_ALL === undefined;
        const { violations } = await runPairs(lanes, pairs, isEnough);
        t.ok(violations.length > 0, `found among ${pairs.length} interleavings`);
        const [first] = violations;
        const inTurn = violations.map((found) => ({ ...found, point: IN_TURN }));
        const harmful = (await runPairs(lanes, inTurn)).violations;
        t.same(harmful.map(sentence), [], 'the same two calls one after the other are harmless');
        t.comment(`${violations.length} of ${pairs.length} find it; the first: ${first ? sentence(first) : 'none'}`);
      } finally {
        await Promise.all(undo.map((take) => take()));
      }
    });
  }
});

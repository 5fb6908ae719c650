/**
 * Each pair of statements that can touch the same rows, at once, in both orders, with the first one
 * stopped wherever possible. Afterwards I2, I3 and I4 hold, no call has failed, and no two callers
 * were given what only one may have.
 */
import { performance } from 'node:perf_hooks';
import t from 'tap';
import { Lane } from './lane.ts';
import { type Footprints, planPairs, runPairs, sentence, surveyAll } from './plan.ts';
import type { Call } from './statement.ts';
import { statements, writingCalls } from './statements.ts';

const LANES = 3;
/** Fewer would mean that the plan no longer serves its purpose. */
const LEAST_INTERLEAVINGS = 5_000;

/** The file takes four minutes alone, and ten beside five other files. */
const TIMEOUT_MS = 1_800_000;
t.setTimeout(TIMEOUT_MS);

t.test('all pairs of statements keep the invariants in both orders', { timeout: TIMEOUT_MS }, async (t) => {
  const startedAt = performance.now();
  const lanes = await Promise.all(Array.from({ length: LANES }, () => Lane.open(t)));
  const footprints = await surveyAll(lanes, writingCalls);
  for (const { name } of writingCalls.filter((call) => !hasEffect(footprints, call)))
    t.ok(WITHOUT_EFFECT.includes(name), `${name}: it changes something in a world, otherwise it proves nothing`);
  const interleavings = planPairs(footprints);
  const plannedAt = performance.now();
  const { violations, notStopped, waited } = await runPairs(lanes, interleavings);

  const count = (keyOf: (one: (typeof interleavings)[number]) => string) => new Set(interleavings.map(keyOf)).size;
  const seconds = (fromMs: number) => Math.round((performance.now() - fromMs) / 1000);
  t.comment(
    `${statements.length} statements, ${statements.filter(({ isReadOnly }) => isReadOnly).length} of them read only; ` +
      `${writingCalls.length} calls of the others; ${count(({ first, second }) => pairName(first.statement, second.statement))} ` +
      `pairs of statements, ${count(({ first, second }) => pairName(first.name, second.name))} of calls; ` +
      `${interleavings.length} interleavings in ${count(({ world }) => world)} worlds at ${count(({ point }) => point)} points; ` +
      `the second leg had to wait in ${waited}; ${violations.length} violations; ${seconds(plannedAt)} s, and ${seconds(startedAt) - seconds(plannedAt)} s to plan them`,
  );
  t.ok(interleavings.length > LEAST_INTERLEAVINGS);
  t.same(
    notStopped.map(({ world, point, first }) => `${world}: ${first.name} at ${point}`),
    [],
    'each first leg stopped at its point',
  );
  for (const violation of violations.slice(0, 20)) t.fail(sentence(violation));
  t.equal(violations.length, 0);
});

/**
 * Refused in every world, as intended: a legacy agent cannot be asked. Or it changes something that
 * no other statement depends on.
 */
const WITHOUT_EFFECT = [
  'cancelTask: posted',
  // They exist.
  'createDuties: that exist',
  // It is not to happen.
  'startNodes: below its quorum',
  'storeVotes: too late',
  'deletePushJob: running',
  'endJob: that goes on',
  'changePushJob: the quorum, too late',
  // A sequence, not a row.
  'advanceTicks: from the first tick',
  // Not coordination rows, so they are not counted; test/control/events tests these statements.
  'numberEvents: recorded changes',
  'deleteSurplusEvents: all but one',
  'deleteOldEvents: of today',
];

const hasEffect = (footprints: Footprints, call: Call): boolean =>
  [...footprints.values()].some((calls) => calls.get(call)?.hasEffect);

const pairName = (one: string, two: string): string => [one, two].sort().join(' and ');

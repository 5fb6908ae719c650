/** What a run says about its rules. */
import t from 'tap';
import { check, rules } from './checker.ts';
import { B, goodEvidence, op, status } from './good-evidence.ts';
import { summariesOf } from './summary.ts';

const RULE = 'a live server is never unknown';

t.test('lists without an unknown server count as checks that live servers stayed running', async (t) => {
  const evidence = goodEvidence();
  evidence.stored.statuses = evidence.stored.statuses.filter((change) => change.status !== 'unknown');
  evidence.history = evidence.history.filter((entry) => entry.kind !== 'op' || entry.op !== 'servers');
  const lineOf = () => summariesOf(check(evidence), false).find(({ rule }) => rule === RULE)?.line;
  t.match(lineOf(), /^ok .*: not checked/);
  const list = op({ op: 'servers', workload: 'status', askedAt: 40_000, status: 200, count: 2, unknown: [] });
  evidence.history.push(list, { ...list, instance: 1 }, { ...list, status: 503 }, { ...list, unknown: [B] });
  t.equal(lineOf(), `ok ${RULE}: 2 held, 0 void, 0 violated`);
  evidence.stored.statuses.push(status(B, 'unknown', 41_000));
  t.equal(lineOf(), `not ok ${RULE}: 2 held, 0 void, 1 violated`);
});

t.test('a rule that was never checked fails a run of all faults only', async (t) => {
  t.equal(summariesOf([], false).filter(({ hasFailed }) => hasFailed).length, 0);
  t.equal(summariesOf([], true).filter(({ hasFailed }) => hasFailed).length, rules.length);
  const result = { rule: RULE, at: 0, workload: 'status', outcome: 'void' } as const;
  const [summary] = summariesOf([result], true).filter(({ rule }) => rule === RULE);
  t.match(summary, { hasFailed: false, line: `ok ${RULE}: 0 held, 1 void, 0 violated (proved nothing)` });
});

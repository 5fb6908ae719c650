/** Which conditions excuse a deviation, and which do not. */
import t from 'tap';
import { matchLists } from '../support/match-lists.ts';
import { check } from './checker.ts';
import { B, begin, faultOf, goodEvidence, opOf, SECOND, status, violationsOf } from './good-evidence.ts';
import { type Evidence, type Fault, parseEffects } from './history.ts';

t.test('a deviation during a fault or on a busy machine is neither a violation nor a proof', async (t) => {
  const resultsOf = (spoil: (evidence: Evidence) => void, rule: string) => {
    const evidence = goodEvidence();
    spoil(evidence);
    return check(evidence).filter((each) => each.rule === rule && each.outcome !== 'held');
  };
  const line: Fault = {
    kind: 'fault',
    name: 'line',
    part: 'line',
    line: 'callers',
    instance: 0,
    servers: [],
    codes: [],
    from: 1_900,
    to: 2_200,
    settledAt: 2_300,
  };
  const unanswered = (fault: Fault) => (evidence: Evidence) => {
    Object.assign(opOf(evidence, 'get'), { status: 0 });
    evidence.history.push(fault);
  };
  const atItsInstance = resultsOf(unanswered(line), 'requests are answered');
  matchLists(t, atItsInstance, [{ outcome: 'void' }]);
  const elsewhere = resultsOf(unanswered({ ...line, instance: 1 }), 'requests are answered');
  matchLists(t, elsewhere, [{ outcome: 'violated' }]);
  const late = ({ stored, history }: Evidence) => {
    stored.statuses.splice(2, 1);
    history.push({ kind: 'starved', from: 20_000, to: 30_000, ms: 4_000, who: 'instance-0' });
  };
  matchLists(t, resultsOf(late, 'a dead server becomes unknown in time'), [{ outcome: 'void' }]);
  const deferred = (at: number) => (evidence: Evidence) => {
    evidence.stored.statuses.splice(2, 1);
    evidence.history.push({ kind: 'deferring', at });
  };
  matchLists(t, resultsOf(deferred(21_000), 'a dead server becomes unknown in time'), [{ outcome: 'void' }]);
  matchLists(t, resultsOf(deferred(19_000), 'a dead server becomes unknown in time'), [{ outcome: 'violated' }]);
  const another = (from: number, settledAt: number) => (evidence: Evidence) => {
    evidence.stored.statuses.splice(2, 1);
    evidence.history.push({ ...line, from, to: settledAt, settledAt });
  };
  matchLists(t, resultsOf(another(19_000, 21_000), 'a dead server becomes unknown in time'), [{ outcome: 'void' }]);
  matchLists(t, resultsOf(another(18_000, 19_900), 'a dead server becomes unknown in time'), [{ outcome: 'violated' }]);
});

t.test('only commands that a lost journal knew may continue after their end', async (t) => {
  const found = (codes: string[]) => {
    const evidence = goodEvidence();
    evidence.effects.push({ ...begin('t2', SECOND, 3_900), event: 'beat' });
    evidence.history.push({ ...faultOf(evidence), codes, from: 2_000, to: 2_500, settledAt: 4_000 });
    return violationsOf(evidence).map(({ rule }) => rule);
  };
  t.same(found(['OutcomeUnknown', 'NotTaken']), []);
  t.same(found(['AgentRestarted', 'NotTaken']), ['commands run once, before their end']);
});

t.test('a live server may become unknown only during two simultaneous faults', async (t) => {
  const found = (other: Partial<Fault>) => {
    const evidence = goodEvidence();
    evidence.stored.statuses.push(status(B, 'unknown', 25_000), status(B, 'running', 25_100, 2));
    evidence.history.push({ ...faultOf(evidence), name: 'other', servers: [], from: 24_000, to: 29_000, ...other });
    return violationsOf(evidence).map(({ rule }) => rule);
  };
  t.same(found({ part: 'instance', instance: 1 }), []);
  t.same(found({ part: 'redis' }), ['a live server is never unknown']);
  t.same(found({ part: 'instance', from: 31_000, to: 32_000 }), ['a live server is never unknown']);
});

const JOBS_END = 'push jobs end as their nodes do';
/** The job of the good run begins at 60 s. */
const during: Partial<Fault> = { servers: [], from: 59_000, to: 62_000, settledAt: 63_000 };
const killed: Partial<Fault> = { ...during, part: 'instance', instance: 0, name: 'instance killed' };
const agentKilled: Partial<Fault> = { ...during, part: 'agent', servers: [B], name: 'agent killed' };

/**
 * An end of a job, the state of one of its nodes, what happened meanwhile, and which of them need a
 * cause.
 */
const jobEnds: readonly [
  what: string,
  outcome: string,
  node: string,
  faults: readonly Partial<Fault>[],
  is: boolean,
][] = [
  ['one instance killed: a server may be late', 'complete', 'unavailable', [killed], true],
  ['one instance killed: a server may be in rehab', 'complete', 'was_ready', [killed], true],
  ['one instance killed: no agent is lost', 'complete', 'crashed', [killed], false],
  ['one instance killed: no command fails', 'complete', 'failed', [killed], false],
  ['one instance killed: no quorum fails', 'quorum_failed', 'unavailable', [killed], false],
  ['one instance killed: no job is aborted', 'aborted', 'was_ready', [killed], false],
  ['one instance killed twice', 'quorum_failed', 'unavailable', [killed, { ...killed, from: 60_100 }], false],
  ['two instances killed', 'quorum_failed', 'unavailable', [killed, { ...killed, instance: 1 }], true],
  ['two instances killed: no job is aborted', 'aborted', 'was_ready', [killed, { ...killed, instance: 1 }], false],
  ['an agent killed', 'complete', 'crashed', [agentKilled], true],
  ['an agent killed: a quorum fails', 'quorum_failed', 'unavailable', [agentKilled], true],
  ['an agent killed: no job is aborted', 'aborted', 'was_ready', [agentKilled], false],
  ['a fault that was over before', 'complete', 'crashed', [{ ...agentKilled, to: 50_000, settledAt: 51_000 }], false],
  ['no fault: no server is late', 'complete', 'unavailable', [], false],
];

for (const [what, outcome, state, faults, isExcused] of jobEnds)
  t.test(`a push job that is ${outcome}, with a node that is ${state}; ${what}`, async (t) => {
    const evidence = goodEvidence();
    const [job] = evidence.stored.pushJobs;
    Object.assign(job ?? {}, { outcome });
    for (const node of job?.nodes ?? []) Object.assign(node, { tasks: 0, ends: 0, state });
    for (const fault of faults) evidence.history.push({ ...faultOf(evidence), dead: undefined, ...fault } as Fault);
    const found = violationsOf(evidence).filter(({ rule }) => rule === JOBS_END);
    t.equal(found.length, isExcused ? 0 : 1);
  });

t.test('on a busy machine a push job that has no cause for its end proves nothing', async (t) => {
  const evidence = goodEvidence();
  Object.assign(evidence.stored.pushJobs[0]?.nodes[0] ?? {}, { state: 'crashed' });
  evidence.history.push({ kind: 'starved', from: 60_000, to: 61_000, ms: 4_000, who: 'instance-0' });
  matchLists(
    t,
    check(evidence).filter(({ rule, outcome }) => rule === JOBS_END && outcome !== 'held'),
    [{ outcome: 'void' }],
  );
});

t.test('an incomplete line is not evidence', async (t) => {
  const text = 'begin t1 id 10 9 12.34\nend t1 id 10 9 15.00 7\nbegin t2 id 1';
  t.same(parseEffects(text), [
    { event: 'begin', token: 't1', task: 'id', pid: 10, agentPid: 9, uptime: 12_340 },
    { event: 'end', token: 't1', task: 'id', pid: 10, agentPid: 9, uptime: 15_000, exitCode: 7 },
  ]);
});

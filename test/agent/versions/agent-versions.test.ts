import t from 'tap';
import {
  type AgentVersions,
  findEnd,
  findRollBack,
  newAgentVersions,
  settledVersion,
  stepVersions,
  type VersionEvent,
  versionsInUse,
  versionToRun,
} from '../../../lib/agent/versions/agent-versions.ts';

const one = { version: '1.1.0', digest: 'a'.repeat(64) };
const two = { version: '1.2.0', digest: 'b'.repeat(64) };
const task = 'the-task';

const start: VersionEvent = { type: 'start' };
const confirm: VersionEvent = { type: 'confirm' };
const fail: VersionEvent = { type: 'fail', reason: 'it exited' };
const stage = (next: typeof one): VersionEvent => ({ type: 'stage', next, task });
const base = (version: string): VersionEvent => ({ type: 'base', version });
const withdraw: VersionEvent = { type: 'withdraw', reason: 'no launcher' };

const after = (...events: VersionEvent[]): AgentVersions => events.reduce(stepVersions, newAgentVersions('1.0.0'));

interface Row {
  events: VersionEvent[];
  change: AgentVersions['change'];
  runs: string | null;
  settled: string;
  ends?: string[];
}

const settled = { name: 'settled' } as const;
const trial = (starts: number) => ({ name: 'trial', next: one, task, starts }) as const;
const rows: Record<string, Row> = {
  'nothing is installed': { events: [], change: settled, runs: null, settled: '1.0.0' },
  'a start without a change starts what ran': { events: [start, start], change: settled, runs: null, settled: '1.0.0' },
  'a staged version does not run before the next start': {
    events: [stage(one)],
    change: { name: 'staged', next: one, task },
    runs: null,
    settled: '1.0.0',
  },
  'a staged version is tried': { events: [stage(one), start], change: trial(1), runs: '1.1.0', settled: '1.0.0' },
  'an interrupted trial begins again': {
    events: [stage(one), start, start],
    change: trial(2),
    runs: '1.1.0',
    settled: '1.0.0',
  },
  'the third start is the last one': {
    events: [stage(one), start, start, start, start],
    change: settled,
    runs: null,
    settled: '1.0.0',
    ends: ['rolled-back 1.1.0 from 1.0.0: it was started 3 times and did not come up'],
  },
  'a confirmed version stays': {
    events: [stage(one), start, confirm, start],
    change: settled,
    runs: '1.1.0',
    settled: '1.1.0',
    ends: ['confirmed 1.1.0 from 1.0.0'],
  },
  'a failed trial goes back to the installation': {
    events: [stage(one), start, fail],
    change: settled,
    runs: null,
    settled: '1.0.0',
    ends: ['rolled-back 1.1.0 from 1.0.0: it exited'],
  },
  'a failed trial goes back to the package before': {
    events: [stage(one), start, confirm, stage(two), start, fail, start],
    change: settled,
    runs: '1.1.0',
    settled: '1.1.0',
    ends: ['confirmed 1.1.0 from 1.0.0', 'rolled-back 1.2.0 from 1.1.0: it exited'],
  },
  'a withdrawn version is not tried': {
    events: [stage(one), withdraw, start],
    change: settled,
    runs: null,
    settled: '1.0.0',
    ends: ['rolled-back 1.1.0 from 1.0.0: no launcher'],
  },
  'a newer installation runs instead of an older package': {
    events: [stage(one), start, confirm, base('1.3.0')],
    change: settled,
    runs: null,
    settled: '1.3.0',
    ends: ['confirmed 1.1.0 from 1.0.0'],
  },
  'an older package that is installed over a newer installation stays': {
    events: [base('1.3.0'), stage(one), start, confirm, base('1.3.0'), start],
    change: settled,
    runs: '1.1.0',
    settled: '1.1.0',
    ends: ['confirmed 1.1.0 from 1.3.0'],
  },
  'a version whose files are gone gives way to the installation': {
    events: [stage(one), start, confirm, { type: 'lost' }],
    change: settled,
    runs: null,
    settled: '1.0.0',
    ends: ['confirmed 1.1.0 from 1.0.0'],
  },
};

t.test('the record of versions after each step', (t) => {
  for (const [name, { events, change, runs, settled, ends = [] }] of Object.entries(rows)) {
    const versions = after(...events);
    t.same(versions.change, change, name);
    t.equal(versionToRun(versions)?.version ?? null, runs, `${name}: what runs`);
    t.equal(settledVersion(versions), settled, `${name}: what runs without a trial`);
    const found = versions.ends.map(
      ({ outcome, version, from, reason }) =>
        `${outcome} ${version} from ${from}${reason === undefined ? '' : `: ${reason}`}`,
    );
    t.same(found, ends, `${name}: ends`);
  }
  t.end();
});

t.test('an impossible step throws and names both', (t) => {
  const impossible: [VersionEvent[], VersionEvent, RegExp][] = [
    [[], confirm, /confirm is not possible while no version is installed/],
    [[], fail, /fail is not possible while no version/],
    [[], withdraw, /withdraw is not possible while no version/],
    [[stage(one)], confirm, /confirm is not possible while version 1\.1\.0 is staged/],
    [[stage(one)], stage(two), /stage is not possible while version 1\.1\.0 is staged/],
    [[stage(one), start], stage(two), /stage is not possible while version 1\.1\.0 is trial/],
    [[stage(one), start], withdraw, /withdraw is not possible while version 1\.1\.0 is trial/],
    [[stage(one), start, confirm], confirm, /confirm is not possible/],
  ];
  for (const [events, event, message] of impossible) t.throws(() => stepVersions(after(...events), event), { message });
  t.end();
});

t.test('the task finds its own end, and files in use are known', (t) => {
  const versions = after(stage(one), start, confirm, { ...stage(two), task: 'other' } as VersionEvent, start, fail);
  t.match(findEnd(versions, task), { outcome: 'confirmed', version: '1.1.0' });
  t.match(findEnd(versions, 'other'), { outcome: 'rolled-back', reason: 'it exited' });
  t.equal(findEnd(versions, 'a third'), undefined);
  t.same(versionsInUse(after(stage(one), start, confirm, stage(two))), [one, two]);
  t.same(versionsInUse(versions), [one]);
  t.end();
});

t.test('a version counts as failed from its roll back until it is confirmed', (t) => {
  const failed: [string, VersionEvent[], string | undefined][] = [
    ['nothing is installed', [], undefined],
    ['it was rolled back', [stage(one), start, fail], 'it exited'],
    ['another version was rolled back', [stage(two), start, fail], undefined],
    ['it was withdrawn before it was started', [stage(one), withdraw], undefined],
    ['it was withdrawn at the second attempt', [stage(one), start, fail, stage(one), withdraw], 'it exited'],
    ['it was confirmed at the second attempt', [stage(one), start, fail, stage(one), start, confirm], undefined],
  ];
  for (const [name, events, reason] of failed)
    t.equal(findRollBack(after(...events), one.digest)?.reason, reason, name);
  t.end();
});

t.test('the ends of installations are bounded', (t) => {
  const events = Array.from({ length: 30 }, () => [stage(one), start, fail]).flat();
  t.equal(after(...events).ends.length, 20);
  t.end();
});

/** Runs that the rules of push jobs must find, for checker.test.ts. */
import { JOB, op, opOf, uptime } from './good-evidence.ts';
import type { Evidence, PushEffect, StoredPushJob } from './history.ts';

export type Bad = [what: string, rule: string, text: RegExp, spoil: (evidence: Evidence) => void];

const jobOf = ({ stored }: Evidence): StoredPushJob => stored.pushJobs[0] as StoredPushJob;

const nodeOf = (evidence: Evidence) => jobOf(evidence).nodes[0] as StoredPushJob['nodes'][number];

export const badPushJobs: readonly Bad[] = [
  [
    'a push job without an end',
    'push jobs end as their nodes do',
    /is still running/,
    (evidence) => Object.assign(jobOf(evidence), { state: 'running', outcome: null, endedAt: null }),
  ],
  [
    'a node that was left behind',
    'push jobs end as their nodes do',
    /its node aaaaaaaa.* is running/,
    (evidence) => Object.assign(nodeOf(evidence), { state: 'running' }),
  ],
  [
    'a server that a push job keeps',
    'push jobs end as their nodes do',
    /still has aaaaaaaa/,
    (evidence) => Object.assign(nodeOf(evidence), { isBusy: true }),
  ],
  [
    'a push job that fails without a cause',
    'push jobs end as their nodes do',
    /is quorum_failed, which nothing caused/,
    (evidence) => Object.assign(jobOf(evidence), { outcome: 'quorum_failed' }),
  ],
  [
    'a push job whose agent is lost without a cause',
    'push jobs end as their nodes do',
    /is complete, which nothing caused: crashed/,
    (evidence) => Object.assign(nodeOf(evidence), { state: 'crashed' }),
  ],
  [
    'a push job that is aborted, and nobody asked for that',
    'push jobs end as their nodes do',
    /is aborted, which nothing caused/,
    (evidence) => Object.assign(jobOf(evidence), { outcome: 'aborted' }),
  ],
  [
    'an abort of another push job',
    'push jobs end as their nodes do',
    /is aborted, which nothing caused/,
    (evidence) => {
      Object.assign(jobOf(evidence), { outcome: 'aborted' });
      evidence.history.push(op({ op: 'push-abort', askedAt: 60_100, status: 202, job: 'another', workload: 'jobs' }));
    },
  ],
  [
    'a push job that asked for an abort, and timed out',
    'push jobs end as their nodes do',
    /is timed_out, which nothing caused/,
    (evidence) => {
      Object.assign(jobOf(evidence), { outcome: 'timed_out' });
      evidence.history.push(op({ op: 'push-abort', askedAt: 60_100, status: 202, job: JOB, workload: 'jobs' }));
    },
  ],
  [
    'a push job that failed its quorum and has started a command',
    'push jobs end as their nodes do',
    /failed its quorum, and has a task for aaaaaaaa/,
    (evidence) => Object.assign(jobOf(evidence), { outcome: 'quorum_failed' }),
  ],
  [
    'a node that was started twice',
    'push jobs end as their nodes do',
    /has 2 tasks for aaaaaaaa/,
    (evidence) => Object.assign(nodeOf(evidence), { tasks: 2, ends: 2 }),
  ],
  [
    'a command whose end was lost',
    'push jobs end as their nodes do',
    /has 0 ends of its task for aaaaaaaa/,
    (evidence) => Object.assign(nodeOf(evidence), { ends: 0 }),
  ],
  [
    'a command that ended twice',
    'push jobs end as their nodes do',
    /has 2 ends of its task for aaaaaaaa/,
    (evidence) => Object.assign(nodeOf(evidence), { ends: 2 }),
  ],
  [
    'a node that succeeded without a command',
    'push jobs end as their nodes do',
    /has succeeded on aaaaaaaa\S* without a task/,
    (evidence) => Object.assign(nodeOf(evidence), { tasks: 0, ends: 0 }),
  ],
  [
    'a push job that an instance does not know',
    'push jobs end as their nodes do',
    /was accepted and is not there/,
    (evidence) => Object.assign(opOf(evidence, 'push-get'), { status: 404 }),
  ],
  [
    'a push job that nobody knows any more',
    'push jobs end as their nodes do',
    /was accepted and is not there/,
    ({ stored }) => stored.pushJobs.shift(),
  ],
  [
    'a command of a push job that began twice',
    'an agent runs the command of a push job once',
    /began 2 times/,
    ({ pushEffects }) => pushEffects.push({ ...(pushEffects[0] as PushEffect) }),
  ],
  [
    'a command of a push job that began after its end',
    'an agent runs the command of a push job once',
    /ms after its end/,
    ({ pushEffects }) => Object.assign(pushEffects[0] ?? {}, { uptime: uptime(70_000) }),
  ],
];

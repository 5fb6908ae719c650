/** Runs that the rules of push jobs must find, for checker.test.ts. */
import { uptime } from './good-evidence.ts';
import type { Evidence, PushEffect } from './history.ts';

export type Bad = [what: string, rule: string, text: RegExp, spoil: (evidence: Evidence) => void];

export const badPushJobs: readonly Bad[] = [
  [
    'a push job without an end',
    'push jobs end as their nodes do',
    /is still running/,
    ({ stored }) => Object.assign(stored.pushJobs[0] ?? {}, { state: 'running', outcome: null, endedAt: null }),
  ],
  [
    'a node that was left behind',
    'push jobs end as their nodes do',
    /its node aaaaaaaa.* is running/,
    ({ stored }) => Object.assign(stored.pushJobs[0]?.nodes[0] ?? {}, { state: 'running' }),
  ],
  [
    'a server that a push job keeps',
    'push jobs end as their nodes do',
    /still has aaaaaaaa/,
    ({ stored }) => Object.assign(stored.pushJobs[0]?.nodes[0] ?? {}, { isBusy: true }),
  ],
  [
    'a push job that fails without a cause',
    'push jobs end as their nodes do',
    /is quorum_failed, which nothing caused/,
    ({ stored }) => Object.assign(stored.pushJobs[0] ?? {}, { outcome: 'quorum_failed' }),
  ],
  [
    'a push job whose agent is lost without a cause',
    'push jobs end as their nodes do',
    /is complete, which nothing caused: crashed/,
    ({ stored }) => Object.assign(stored.pushJobs[0]?.nodes[0] ?? {}, { state: 'crashed' }),
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

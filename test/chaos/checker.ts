/**
 * Checks the evidence of a run against every rule. Pure; called by run.ts, and by checker.test.ts
 * with artificial evidence.
 */

import type { CheckResult, Findings } from './findings.ts';
import type { Evidence } from './history.ts';
import { cancelsEnd, keysGiveOneTask } from './rules/keys-and-cancels.ts';
import { locksGoInOrder, noTwoHolders, waitsForLocksAreTrue } from './rules/locks.ts';
import { pushCommandsRunOnce, pushJobsEnd } from './rules/push-jobs.ts';
import { commandsRunOnce, outcomesAreReal } from './rules/runs.ts';
import { arrivalsTakeNoSession, serversLeaveAFrozenInstance } from './rules/sessions.ts';
import {
  deadServersBecomeUnknown,
  epochsOnlyRise,
  liveServersAreNeverUnknown,
  noProcessExits,
  statusIsAsRecorded,
  zoneRecovers,
} from './rules/status.ts';
import { answersAboutATaskAgree, eachTaskEndsOnce, nothingAcceptedIsMissing, tasksEndInTime } from './rules/tasks.ts';
import { requestsAreAnswered, waitsEnd } from './rules/waits.ts';
import { World } from './world.ts';

export const rules: readonly ((world: World) => Findings)[] = [
  nothingAcceptedIsMissing,
  eachTaskEndsOnce,
  tasksEndInTime,
  answersAboutATaskAgree,
  commandsRunOnce,
  outcomesAreReal,
  waitsEnd,
  requestsAreAnswered,
  keysGiveOneTask,
  cancelsEnd,
  noTwoHolders,
  locksGoInOrder,
  waitsForLocksAreTrue,
  pushJobsEnd,
  pushCommandsRunOnce,
  liveServersAreNeverUnknown,
  deadServersBecomeUnknown,
  statusIsAsRecorded,
  zoneRecovers,
  arrivalsTakeNoSession,
  serversLeaveAFrozenInstance,
  epochsOnlyRise,
  noProcessExits,
];

export const ruleNames: readonly string[] = rules.map(
  (rule) =>
    rule(
      new World({
        history: [],
        stored: { tasks: [], tickets: [], statuses: [], pushJobs: [] },
        effects: [],
        pushEffects: [],
      }),
    ).rule,
);

export function check(evidence: Evidence): CheckResult[] {
  const world = new World(evidence);
  return rules.flatMap((rule) => rule(world).all);
}

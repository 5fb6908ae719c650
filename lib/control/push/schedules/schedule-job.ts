/** The job of a schedule: a body of POST /push-jobs, which is read again each time. */
import { InvalidParametersError, invalidParameter } from '../../../platform/errors.ts';
import { checkParams } from '../../../protocol/api/contract/contract.ts';
import { TARGET_KINDS } from '../../../protocol/api/push/job-rules.ts';
import { pushJobContracts } from '../../../protocol/api/push/jobs.ts';
import { findJobIssues, findUnknownMembers } from '../../../protocol/api/push/schedules.ts';
import type { JsonObject } from '../../../protocol/json/bounded-json.ts';
import type { NewPushJob } from '../push-store.ts';
import { resolvePushJob } from '../request/job-request.ts';
import type { KnownJobs, KnownServers } from '../request/job-targets.ts';

interface PushJobDeps {
  id: string;
  actor: string | undefined;
  servers: KnownServers;
  pushJobs: KnownJobs;
}

/** The job as its body says, for the servers that there are now. @throws errors of the request */
export async function resolveScheduledJob(
  body: JsonObject,
  { pushJobs: jobs, ...known }: PushJobDeps,
): Promise<NewPushJob> {
  const { data, issues } = checkParams(pushJobContracts.CreatePushJob, body);
  if (data !== undefined && issues.length === 0) return resolvePushJob(data, { ...known, jobs });
  // Written by another version.
  throw new InvalidParametersError(
    400,
    issues.map(({ field, message }) => ({ field: field || 'job', code: 'Invalid', message })),
  );
}

/**
 * The job with the members that change; its servers are named in one way. @throws
 * InvalidParametersError
 */
export function changedJob(present: JsonObject, changes: JsonObject): JsonObject {
  const namesServers = TARGET_KINDS.some((name) => (changes[name] ?? null) !== null);
  const dropped: readonly string[] = namesServers ? [...TARGET_KINDS, 'from_status'] : [];
  const kept = Object.entries(present).filter(([name]) => !dropped.includes(name));
  const all = Object.entries({ ...Object.fromEntries(kept), ...changes }).filter(([, value]) => value !== null);
  const job = Object.fromEntries(all) as JsonObject;
  // A name that the job has can be removed, also if it is that of another version.
  const newNames = Object.keys(changes).filter((name) => changes[name] === null && !Object.hasOwn(present, name));
  const issues = [...findUnknownMembers(newNames), ...findJobIssues(job)];
  if (issues.length > 0) throw invalidParameter('job', issues.join('; '));
  return job;
}

/** Push jobs for the worlds in which pairs run. */
import { randomUUID } from 'node:crypto';
import type { HeldDuty } from '../../lib/control/duty/duty.ts';
import { claimDuties } from '../../lib/control/duty/duty-store.ts';
import { abortJob, endJob, startNodes } from '../../lib/control/push/coordinator/coordinator-store.ts';
import { storeVotes } from '../../lib/control/push/messenger/messenger-store.ts';
import { createPushJob, type NewPushJob, PUSH_DUTY } from '../../lib/control/push/push-store.ts';
import { cancelTask } from '../../lib/control/tasks/store/task-store.ts';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import { newPushJob, votesOf } from './push-statements.ts';
import type { PushKind, Seat } from './statement.ts';

export type PushState = 'asked' | 'ready' | 'running' | 'aborting' | 'rehab';
type PushJobs = Partial<Record<PushKind, HeldDuty>>;

/** Jobs of these servers, carried out by this run. */
export async function createPushJobs(
  database: Queryable,
  run: string,
  seats: readonly Seat[],
  state: PushState,
): Promise<PushJobs> {
  const servers = seats.map(({ serverUuid }) => serverUuid);
  const created = async (more: Partial<NewPushJob> = {}) => {
    await createPushJob(database, { ...newPushJob(servers), ...more });
    return (await claimDuties(database, run, { kinds: [PUSH_DUTY], limit: 1 }))[0] as HeldDuty;
  };
  // The coordinator writes the feed of an organization's job.
  const duty = await created(state === 'running' ? { organization: 'acme' } : {});
  if (state === 'asked') {
    const ticket = { serverUuid: 'default', scope: 'push', id: 'one', expiresInSeconds: 3_600, timeoutMs: 60_000 };
    return { asked: duty, alsoAsked: await created(), waiting: await created({ ticket }) };
  }
  await storeVotes(database, votesOf(duty.id, { seats }, true));
  if (state === 'ready') return { ready: duty };
  if (state === 'running') {
    const ids = [randomUUID(), randomUUID()] as const;
    await startNodes(database, duty, { ids, runMs: 0 });
    await cancelTask(database, ids[0]);
    return { running: duty };
  }
  if (state === 'aborting') {
    await startNodes(database, duty, { ids: [randomUUID(), randomUUID()], runMs: 0 });
    await abortJob(database, duty, { ending: 'timed_out', soft: true, reason: 'asked', limit: 9 });
    return { aborting: duty };
  }
  await abortJob(database, duty, { ending: 'aborted', soft: false, reason: 'asked', limit: 9 });
  await endJob(database, duty, 'aborted');
  await database.query(
    `update cnapi_push_jobs set state_since = state_since - interval '2 days', organization = 'acme'`,
  );
  return { aborted: duty };
}

/**
 * The job, its duty, its node of one server, and that server's place in it: the statements that
 * lock them.
 */
export function pushHoldsOf({ serverUuid }: Seat, jobs: PushJobs): Record<string, string> {
  const duty = Object.values(jobs)[0];
  if (duty === undefined) return {};
  return {
    'push job': `select 1 from cnapi_push_jobs where id = '${duty.id}' for update`,
    'duty of the push job': `select 1 from cnapi_duties where id = '${duty.id}' for update`,
    'push node': `select 1 from cnapi_push_nodes where job = '${duty.id}' and server_uuid = '${serverUuid}' for update`,
    'busy server': `select 1 from cnapi_push_busy where server_uuid = '${serverUuid}' for update`,
  };
}

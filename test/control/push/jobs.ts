/** Push jobs of a test, through the routes of an instance. */
import { JOB_ENDS, type PushJob, type PushNode } from '../../../lib/protocol/api/push/job-schemas.ts';
import type { TestApp } from '../../support/apps.ts';
import { until } from '../../support/until.ts';

/** The statuses of jobs that have ended. */
export const ENDS: readonly string[] = JOB_ENDS;

export async function createdJob(app: TestApp, body: Record<string, unknown>): Promise<PushJob> {
  const { status, body: job } = await app.post<PushJob>('/push-jobs', body);
  if (status !== 201) throw new Error(`${status} ${JSON.stringify(job)}`);
  return job;
}

export const endedJob = (app: TestApp, id: string): Promise<PushJob> =>
  until(async () => {
    const { body } = await app.get<PushJob>(`/push-jobs/${id}`);
    return ENDS.includes(body.status) ? body : undefined;
  }, `push job ${id} to end`);

export const nodesOfJob = async (app: TestApp, id: string): Promise<PushNode[]> =>
  (await app.get<PushNode[]>(`/push-jobs/${id}/nodes`)).body;

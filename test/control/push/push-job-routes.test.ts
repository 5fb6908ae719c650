/** What the routes of push jobs answer where another request comes between. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { createPushJob, readPushJob, readPushJobByKey, requestAbort } from '../../../lib/control/push/push-store.ts';
import { pushJobRoutes } from '../../../lib/control/push/routes/push-job-routes.ts';
import { toPushJob } from '../../../lib/control/push/routes/push-job-view.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { newPushJob } from '../../interleavings/push-statements.ts';
import { freshDatabase } from '../../support/postgres.ts';

t.test('a key used by another request, whose job was deleted meanwhile, can be tried again', async (t) => {
  const server = '00000000-0000-4000-8000-000000000001';
  const routes = pushJobRoutes({
    pushJobs: { findByIdempotencyKey: async () => undefined, create: async () => false } as never,
    servers: { hostnames: async () => new Map([[server, 'web-1']]) } as never,
    random: { uuid: () => '00000000-0000-4000-8000-000000000002' } as never,
  });
  const create = routes.find(({ method, path }) => method === 'POST' && path === '/push-jobs');
  const request = {
    params: { command: 'true', servers: [server] },
    actor: { name: 'alice' },
    header: (name: string) => (name === 'Idempotency-Key' ? 'one' : undefined),
    withAuditRecord: (change: (record: undefined) => unknown) => change(undefined),
  };
  await t.rejects(create?.handler(request as never) as Promise<unknown>, {
    name: 'PushJobKeyLostError',
    code: 'IdempotencyKeyLost',
    statusCode: 503,
    retryAfterSeconds: 1,
  });
});

t.test('different callers may use the same key, each for a job of its own', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const ids: string[] = [];
  for (const actor of ['alice', 'bob', undefined]) {
    const repeat = { key: 'deploy-1', hash: `of ${actor}`, actor };
    const job = { ...newPushJob([randomUUID()]), actor, repeat };
    t.equal(await createPushJob(database, job), 'created');
    t.equal(await createPushJob(database, { ...job, id: randomUUID() }), 'unmet');
    t.same(await readPushJobByKey(database, repeat), { id: job.id, hash: repeat.hash });
    ids.push(job.id);
  }
  t.equal(new Set(ids).size, 3);
});

t.test('who first asked for the abort of a job is shown', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const { id, ...job } = newPushJob([randomUUID()]);
  await createPushJob(database, { ...job, id });
  const shown = async () =>
    toPushJob((await readPushJob(database, id)) as never, { name: 'alice', roles: [] } as never);
  t.notOk('aborted_by' in (await shown()));
  for (const actor of ['bob', 'carol']) await requestAbort(database, id, { how: 'hard', actor });
  t.match(await shown(), { aborted_by: 'bob' });
});

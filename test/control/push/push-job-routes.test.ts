/** What the routes of push jobs answer where another request comes between. */
import t from 'tap';
import { pushJobRoutes } from '../../../lib/control/push/routes/push-job-routes.ts';

t.test('a key used by another request, whose job was deleted meanwhile, can be tried again', async (t) => {
  const server = '00000000-0000-4000-8000-000000000001';
  const routes = pushJobRoutes({
    pushJobs: { made: async () => undefined, create: async () => false } as never,
    servers: { hostnames: async () => new Map([[server, 'web-1']]) } as never,
    random: { uuid: () => '00000000-0000-4000-8000-000000000002' } as never,
  });
  const create = routes.find(({ method, path }) => method === 'POST' && path === '/push-jobs');
  const request = {
    params: { command: 'true', servers: [server] },
    actor: { name: 'alice' },
    header: (name: string) => (name === 'Idempotency-Key' ? 'one' : undefined),
    withRecord: (change: (record: undefined) => unknown) => change(undefined),
  };
  await t.rejects(create?.handler(request as never) as Promise<unknown>, {
    name: 'PushJobKeyLostError',
    statusCode: 503,
    retryAfterSeconds: 1,
  });
});

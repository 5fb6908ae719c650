/** What callers change in push jobs that go on, through real instances, Postgres, and simulated machines. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import type { PushJob } from '../../../lib/protocol/api/push-jobs.ts';
import { freshZone, type TestApp } from '../../support/apps.ts';
import { startAgents } from '../../support/simulated-agents.ts';
import { until } from '../../support/until.ts';
import { createdJob, endedJob, nodesOfJob } from './jobs.ts';

const MAX_RATE = 4;

t.test('a zone of two instances', async (t) => {
  const zone = await freshZone(t);
  const a = await zone.startApp();
  const b = await zone.startApp();
  const agents = await startAgents(t, [a, b], 5);
  const servers = agents.map(({ serverUuid }) => serverUuid);
  const counted = (id: string, counts: PushJob['counts']) =>
    until(
      async () => {
        const { body } = await b.get<PushJob>(`/push-jobs/${id}`);
        return Object.entries(counts).every(([state, count]) => body.counts[state as 'new'] === count)
          ? body
          : undefined;
      },
      `push job ${id} to have ${JSON.stringify(counts)}`,
    );
  const abort = (app: TestApp, id: string, body: Record<string, unknown> = {}) =>
    app.put<{ code: string; errors: unknown }>(`/push-jobs/${id}/abort`, body);

  await t.test('some nodes are aborted, whether they run or wait, and the job goes on with the others', async (t) => {
    const { id } = await createdJob(a, { command: 'sleep 300', servers, concurrency: 3 });
    await counted(id, { running: 3 });
    const nodes = await nodesOfJob(a, id);
    const some = (status: string) => nodes.find((node) => node.status === status)?.server_uuid;
    const chosen = [some('running'), some('ready')];
    t.match(await abort(b, id, { nodes: chosen }), { status: 202, body: { status: 'running' } });
    // The last one that waited starts in the place of the one that ran.
    await counted(id, { aborted: 1, was_ready: 1, running: 3 });
    t.match(await abort(a, id, { nodes: chosen }), { status: 202 }, 'repeating it is harmless');
    t.match(
      (await nodesOfJob(a, id)).find(({ server_uuid }) => server_uuid === chosen[1]),
      { status: 'was_ready', reason: 'aborted' },
    );
    await abort(b, id);
    t.match(await endedJob(a, id), { status: 'aborted', counts: { aborted: 4, was_ready: 1 } });
    t.match(await abort(a, id, { nodes: chosen }), { status: 409, body: { code: 'PushJobEnded' } });
  });

  await t.test('a job is complete when the rest of its nodes was aborted', async (t) => {
    const { id } = await createdJob(b, { command: 'sleep 300', servers });
    await counted(id, { running: 5 });
    await abort(a, id, { nodes: servers });
    t.match(await endedJob(b, id), { status: 'complete', counts: { aborted: 5 } });
    const next = await createdJob(a, { command: 'true', servers });
    t.match(await endedJob(b, next.id), { counts: { succeeded: 5 } }, 'the servers are free again');
  });

  await t.test(
    'after a soft abort of nodes their running commands end, and the waiting ones do not start',
    async (t) => {
      const { id } = await createdJob(a, { command: 'sleep 2', servers, concurrency: 2 });
      await counted(id, { running: 2 });
      await abort(b, id, { nodes: servers, soft: true });
      t.match(await endedJob(a, id), { status: 'complete', counts: { succeeded: 2, was_ready: 3 } });
    },
  );

  await t.test('nodes start no faster than the start rate of the job', async (t) => {
    const { id } = await createdJob(a, { command: 'true', servers, start_rate: MAX_RATE });
    t.match(await endedJob(b, id), { status: 'complete', start_rate: MAX_RATE, counts: { succeeded: 5 } });
    const { rows } = await zone.database.query<{ gap_ms: number }>(
      `select extract(epoch from c.created_at - lag(c.created_at) over (order by c.created_at)) * 1000 as gap_ms
         from cnapi_push_nodes n join cnapi_tasks c on c.id = n.task where n.job = $1::uuid order by c.created_at offset 1`,
      [id],
    );
    t.equal(rows.length, 4);
    // A node is charged before the statement that starts it, which may take longer than the next one.
    const ms = rows.reduce((sum, { gap_ms }) => sum + Number(gap_ms), 0);
    t.ok(ms > (3 / MAX_RATE) * 1000, `${ms} ms between the first start and the last`);
  });

  await t.test('an abort that names a server outside the job aborts nothing', async (t) => {
    const { id } = await createdJob(a, { command: 'sleep 300', servers: servers.slice(0, 2) });
    await counted(id, { running: 2 });
    for (const nodes of [[servers[0], servers[2]], [randomUUID()], [], [servers[0], servers[0]], 'all'])
      t.match(await abort(b, id, { nodes }), { status: 400, body: { errors: { 0: { field: 'nodes' } } } });
    const { rows } = await zone.database.query(
      'select from cnapi_push_nodes where job = $1::uuid and abort_requested is not null',
      [id],
    );
    t.equal(rows.length, 0);
    t.match(await abort(a, randomUUID(), { nodes: servers }), { status: 404 });
    await abort(b, id);
    await endedJob(b, id);
  });
});

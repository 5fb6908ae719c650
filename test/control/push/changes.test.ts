/**
 * What callers change in push jobs that go on, through real instances, Postgres, and simulated
 * machines.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import type { PushJob } from '../../../lib/protocol/api/push/job-schemas.ts';
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
  /** No server is in a job, or in rehab. */
  const allIdle = () =>
    until(
      async () => (await zone.database.query('select from cnapi_push_busy')).rows.length === 0,
      'all servers to be idle',
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
      { status: 'was_ready', reason: 'node-aborted' },
    );
    await abort(b, id);
    t.match(await endedJob(a, id), { status: 'aborted', counts: { aborted: 4, was_ready: 1 } });
    await allIdle();
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

  const deaf = randomUUID();
  await a.post(`/servers/${deaf}/sysinfo`, { sysinfo: { UUID: deaf, Hostname: 'deaf' } });
  /**
   * Makes the zone believe, until it notices, that the agent is connected. The agent never votes.
   */
  const connectDeaf = () =>
    zone.database.query(
      `insert into cnapi_roster_authority (server_uuid, cnapi_uuid, run, incarnation, epoch, status, reason, since)
         select $1::uuid, cnapi_uuid, run, $1::uuid, 1, 'running', 'test', cnapi_now() from cnapi_instances limit 1
         on conflict (server_uuid) do update set status = 'running', run = excluded.run, epoch = cnapi_roster_authority.epoch + 1`,
      [deaf],
    );
  const change = (app: TestApp, id: string, body: Record<string, unknown>) =>
    app.post<PushJob & { message: string }>(`/push-jobs/${id}`, body);

  await t.test('a job that votes gets a quorum that it has already, and starts', async (t) => {
    await connectDeaf();
    const { id } = await createdJob(a, { command: 'true', servers: [deaf, ...servers] });
    await counted(id, { ready: 5 });
    t.match(await change(b, id, { quorum: '80%' }), { status: 200, body: { quorum: 5 } });
    await until(async () => (await a.get<PushJob>(`/push-jobs/${id}`)).body.status === 'running', 'it to run');
    t.match(await change(b, id, { quorum: 1 }), { status: 409, body: { code: 'PushJobNotChangeable' } });
    await change(a, id, { voting_timeout_ms: 1 });
    t.match(await endedJob(b, id), { status: 'complete', counts: { succeeded: 5, unavailable: 1 } });
    t.match(await change(a, id, { concurrency: 1 }), { status: 409, body: { code: 'PushJobEnded' } });
  });

  await t.test('a voting timeout that is over when it is changed ends the voting', async (t) => {
    await connectDeaf();
    const { id } = await createdJob(a, { command: 'true', servers: [deaf, ...servers] });
    await counted(id, { ready: 5 });
    await change(b, id, { voting_timeout_ms: 1 });
    t.match(await endedJob(a, id), { status: 'quorum_failed', voting_timeout_ms: 1 });
    await allIdle();
  });

  await t.test('a job that runs gets another concurrency, and ends at another run timeout', async (t) => {
    const { id } = await createdJob(a, { command: 'sleep 300', servers, concurrency: 1, max_failures: 2 });
    await counted(id, { running: 1 });
    t.match(await change(b, id, { concurrency: 3 }), { status: 200, body: { concurrency: 3, max_failures: 2 } });
    await counted(id, { running: 3 });
    const { body } = await change(b, id, { concurrency: null, max_failures: null });
    t.notOk('concurrency' in body || 'max_failures' in body, 'no limits any more');
    await counted(id, { running: 5 });
    await change(a, id, { run_timeout_ms: 1 });
    t.match(await endedJob(b, id), { status: 'timed_out', counts: { timed_out: 5 } });
    await allIdle();
  });

  await t.test('commands that run go on for the longer run timeout that their job gets', async (t) => {
    const { id } = await createdJob(a, { command: 'sleep 6', servers, run_timeout_ms: 5_000 });
    await counted(id, { running: 5 });
    t.match(await change(b, id, { run_timeout_ms: 600_000 }), { status: 200, body: { run_timeout_ms: 600_000 } });
    t.match(await endedJob(a, id), { status: 'complete', counts: { succeeded: 5 } });
    await allIdle();
  });

  await t.test('a change that cannot be is refused, and changes nothing', async (t) => {
    await connectDeaf();
    const { id } = await createdJob(a, { command: 'true', servers: [deaf, ...servers] });
    const refusals = [
      [{ quorum: 7 }, 400, /7, and the job has 6 nodes/],
      [{ quorum: 0 }, 400, /quorum|number of nodes/],
      [{ concurrency: 0 }, 400, /concurrency/],
      [{ start_rate: -1 }, 400, /start_rate/],
      [{ run_timeout_ms: null }, 400, /run_timeout_ms/],
      [{ command: 'false' }, 409, /command/],
    ] as const;
    for (const [body, status, says] of refusals) {
      const answer = await change(b, id, body);
      t.equal(answer.status, status, JSON.stringify(body));
      t.match(JSON.stringify(answer.body), says);
    }
    t.match(await change(b, randomUUID(), { concurrency: 1 }), { status: 404 });
    await abort(a, id);
    t.match(await endedJob(b, id), { status: 'aborted', quorum: 6 });
    await allIdle();
  });

  const add = (app: TestApp, id: string, some: readonly (string | undefined)[]) =>
    app.post<PushJob & { code: string }>(`/push-jobs/${id}/nodes`, { servers: some });

  await t.test('servers that are added while a job votes count for its quorum in percent', async (t) => {
    await connectDeaf();
    const { id } = await createdJob(a, { command: 'true', servers: [deaf, servers[0]], quorum: '60%' });
    await counted(id, { ready: 1 });
    t.match(await add(b, id, servers.slice(1, 3)), { status: 201, body: { node_count: 4, quorum: 3 } });
    await counted(id, { succeeded: 3 });
    t.match(await add(a, id, servers.slice(3)), { status: 201, body: { node_count: 6, quorum: 3 } }, 'it runs already');
    await counted(id, { succeeded: 5 });
    t.match(await add(b, id, [servers[1]]), { status: 400, body: { errors: { 0: { field: 'servers' } } } });
    await change(a, id, { voting_timeout_ms: 1 });
    t.match(await endedJob(a, id), { status: 'complete', counts: { succeeded: 5, unavailable: 1 } });
    t.match(await add(b, id, [servers[1]]), { status: 409, body: { code: 'PushJobEnded' } });
  });

  await t.test(
    'servers that do not exist or are nodes already are refused, with all that came with them',
    async (t) => {
      const { id } = await createdJob(a, { command: 'sleep 300', servers: servers.slice(0, 2), quorum: 1 });
      await counted(id, { running: 2 });
      for (const some of [[servers[2], servers[1]], [servers[2], randomUUID()], [servers[2], servers[2]], []])
        t.match(await add(b, id, some), { status: 400, body: { errors: { 0: { field: 'servers' } } } });
      t.equal((await nodesOfJob(b, id)).length, 2);
      await change(a, id, { voting_timeout_ms: 1 });
      await until(async () => {
        const { status, body } = await add(b, id, [servers[2]]);
        return status === 409 && body.code === 'PushJobNotChangeable';
      }, 'the voting to be over');
      await abort(b, id);
      t.match(await add(a, randomUUID(), [servers[2]]), { status: 404 });
      await endedJob(b, id);
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
    // A node is charged before the statement that starts it, which may take longer than the next
    // one.
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

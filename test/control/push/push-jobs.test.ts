/** Push jobs through real instances, Postgres, and agents on simulated machines. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import type { PushJob } from '../../../lib/protocol/api/push/job-schemas.ts';
import { freshZone } from '../../support/apps.ts';
import { matchLists } from '../../support/match-lists.ts';
import { startAgents } from '../../support/simulated-agents.ts';
import { until } from '../../support/until.ts';
import { createdJob, ENDS, endedJob, nodesOfJob } from './jobs.ts';

t.test('a zone of two instances', async (t) => {
  const zone = await freshZone(t);
  const a = await zone.startApp();
  const b = await zone.startApp();
  const agents = await startAgents(t, [a, b], 6);
  const servers = agents.map(({ serverUuid }) => serverUuid);

  await t.test('a job runs its command on all nodes, and any instance shows how it went', async (t) => {
    const { id } = await createdJob(a, { command: 'echo hello', servers });
    t.match(await endedJob(b, id), { status: 'complete', counts: { succeeded: 6 }, node_count: 6, quorum: 6 });
    const [node] = await nodesOfJob(a, id);
    const { body: task } = await b.get<{ history: unknown }>(`/tasks/${node?.task_id}`);
    matchLists(t, task.history, [{ event: { stdout: 'hello\n', exitCode: 0 } }]);
  });

  await t.test('a node whose command fails is failed, with its exit code; the job is complete', async (t) => {
    const { id } = await createdJob(b, { command: 'exit 3', servers: servers.slice(0, 2) });
    t.match(await endedJob(a, id), { status: 'complete', counts: { failed: 2 } });
    matchLists(t, await nodesOfJob(a, id), [
      { status: 'failed', exit_code: 3 },
      { status: 'failed', exit_code: 3 },
    ]);
  });

  await t.test(
    'a node that is busy with another job votes against this one, which starts below its quorum',
    async (t) => {
      const slow = await createdJob(a, { command: 'sleep 300', servers: servers.slice(0, 1) });
      await until(async () => (await a.get<PushJob>(`/push-jobs/${slow.id}`)).body.counts.running === 1);
      const other = await createdJob(b, { command: 'echo', servers, quorum: '80%' });
      t.match(await endedJob(b, other.id), { status: 'complete', counts: { succeeded: 5, nacked: 1 } });
      const strict = await createdJob(b, { command: 'echo', servers });
      t.match(await endedJob(b, strict.id), { status: 'quorum_failed', counts: { nacked: 1 } });
      t.match(
        (await nodesOfJob(b, strict.id)).find(({ status }) => status === 'nacked'),
        { reason: 'busy', busy_with: slow.id },
      );

      t.equal((await fetch(`${b.url}/push-jobs/${slow.id}/abort`, { method: 'PUT' })).status, 202);
      t.match(await endedJob(a, slow.id), { status: 'aborted', counts: { aborted: 1 } });
      const next = await createdJob(a, { command: 'echo', servers });
      t.match(
        await endedJob(a, next.id),
        { status: 'complete', counts: { succeeded: 6 } },
        'all of them are free again',
      );
    },
  );

  await t.test('at most as many nodes as the concurrency run at the same time', async (t) => {
    const { id } = await createdJob(a, { command: 'sleep 0.3', servers, concurrency: 2 });
    let limit = 0;
    const job = await until(async () => {
      const { rows } = await zone.database.query<{ count: number }>(
        `select count(*)::int as count from cnapi_tasks where name = 'push_command' and state <> 'ended'`,
      );
      limit = Math.max(limit, rows[0]?.count ?? 0);
      const { body } = await b.get<PushJob>(`/push-jobs/${id}`);
      return ENDS.includes(body.status) ? body : undefined;
    });
    t.match(job, { status: 'complete', counts: { succeeded: 6 } });
    t.equal(limit, 2);
  });

  await t.test('a request that is repeated under its key gives the same job, at any instance', async (t) => {
    const post = async (app: typeof a, body: object, key: string) => {
      const headers = { 'content-type': 'application/json', 'idempotency-key': key };
      const answer = await fetch(`${app.url}/push-jobs`, { method: 'POST', headers, body: JSON.stringify(body) });
      return { status: answer.status, body: (await answer.json()) as { id: string; code: string } };
    };
    const secret = { env: { A: 'one' }, secret_env: ['A'] };
    const body = { command: 'echo', servers, ...secret };
    const key = randomUUID();
    const all = await Promise.all([a, b, a, b].map((app) => post(app, body, key)));
    const [id] = all.map((one) => one.body.id);
    t.strictSame(
      all.map((one) => [one.status, one.body.id]),
      all.map(() => [201, id]),
    );
    const { rows } = await zone.database.query<{ request_hash: string }>(
      'select request_hash from cnapi_push_jobs where idempotency_key = $1',
      [key],
    );
    t.equal(rows.length, 1);
    t.match(await post(a, { ...body, env: { A: 'two' } }, key), { status: 201, body: { id } }, 'no secret is compared');
    t.match(await post(b, { ...body, command: 'echo 2' }, key), { status: 409, body: { code: 'IdempotencyConflict' } });
    const other = await post(b, { command: 'echo 2', servers }, randomUUID());
    t.not(other.body.id, id);
    await endedJob(a, id ?? '');
    await endedJob(a, other.body.id);
    t.match(await post(b, body, key), { status: 201, body: { id, status: 'complete' } }, 'in its present state');
  });

  await t.test('bad input is refused with the name of the field, and nothing is created', async (t) => {
    const count = async () => (await a.get<{ jobs: unknown[] }>('/push-jobs')).body.jobs.length;
    const before = await count();
    const unknownServer = '00000000-0000-4000-8000-000000000000';
    for (const [field, body] of [
      ['command', { servers }],
      ['servers', { command: 'echo' }],
      ['servers', { command: 'echo', servers: [] }],
      ['servers', { command: 'echo', servers: [servers[0], servers[0]] }],
      ['servers', { command: 'echo', servers: [unknownServer] }],
      ['env', { command: 'echo', servers, env: { A: 'x'.repeat(65_536) } }],
      ['quorum', { command: 'echo', servers, quorum: 7 }],
      ['quorum', { command: 'echo', servers, quorum: -1 }],
      ['quorum', { command: 'echo', servers, quorum: '120%' }],
      ['quorum', { command: 'echo', servers, quorum: '100.9%' }],
      ['quorum', { command: 'echo', servers, quorum: ['100%'] }],
      ['quorum', { command: 'echo', servers, quorum: { toString: 1 } }],
      ['start_rate', { command: 'echo', servers, start_rate: 0 }],
      ['run_timeout_ms', { command: 'echo', servers, run_timeout_ms: -5 }],
      ['env', { command: 'echo', servers, env: ['A=1'] }],
      ['file', { command: 'echo', servers, file: 'base64:???' }],
      ['file', { command: 'echo', servers, file: `raw:${'x'.repeat(100_001)}` }],
    ] as const) {
      const { status, body: error } = await a.post<{ errors: { field: string }[] }>('/push-jobs', body);
      t.equal(status, 400, JSON.stringify(body).slice(0, 60));
      t.equal(error.errors[0]?.field, field);
    }
    t.match(await a.post('/push-jobs', { command: 'echo', servers, nodes: servers }), {
      status: 409,
      body: { message: /nodes/ },
    });
    t.equal(await count(), before);
  });

  await t.test('nobody can start a node of a job by a task of the same name', async (t) => {
    t.match(await a.post(`/servers/${servers[0]}/tasks`, { task: 'push_command', params: { job: randomUUID() } }), {
      status: 400,
      body: { code: 'InvalidParameters', errors: { 0: { field: 'task', message: /push jobs only/ } } },
    });
  });

  await t.test('a job without enough votes in time has no quorum, and starts nothing', async (t) => {
    const deaf = randomUUID();
    await zone.database.query(
      `insert into cnapi_roster_authority (server_uuid, cnapi_uuid, run, incarnation, epoch, status, reason, since)
         select $1::uuid, cnapi_uuid, run, $1::uuid, 1, 'running', 'test', cnapi_now() from cnapi_instances limit 1`,
      [deaf],
    );
    await a.post(`/servers/${deaf}/sysinfo`, { sysinfo: { UUID: deaf, Hostname: 'deaf' } });
    const { id } = await createdJob(a, { command: 'echo', servers: [deaf, ...servers], voting_timeout_ms: 500 });
    t.match(await endedJob(b, id), { status: 'quorum_failed', counts: { was_ready: 6 } });
    const { rows } = await zone.database.query(
      'select from cnapi_push_nodes where job = $1::uuid and task is not null',
      [id],
    );
    t.equal(rows.length, 0);
  });

  await t.test('a job that runs longer than it may is timed out, and its commands are stopped', async (t) => {
    const { id } = await createdJob(a, { command: 'sleep 300', servers });
    await until(async () => (await a.get<PushJob>(`/push-jobs/${id}`)).body.counts.running === 6);
    // It has run for longer than that. With a timeout from the start its commands could end first.
    t.equal((await b.post(`/push-jobs/${id}`, { run_timeout_ms: 1 })).status, 200);
    t.match(await endedJob(b, id), { status: 'timed_out', counts: { timed_out: 6 } });
    const next = await createdJob(a, { command: 'echo', servers });
    t.match(await endedJob(a, next.id), { status: 'complete', counts: { succeeded: 6 } });
  });

  await t.test('a soft abort starts nothing more, and lets running commands end', async (t) => {
    const { id } = await createdJob(a, { command: 'sleep 4', servers, concurrency: 2 });
    await until(async () => (await a.get<PushJob>(`/push-jobs/${id}`)).body.counts.running === 2);
    t.equal((await fetch(`${b.url}/push-jobs/${id}/abort?soft=true`, { method: 'PUT' })).status, 202);
    t.match(await endedJob(a, id), { status: 'aborted', counts: { succeeded: 2, was_ready: 4 } });
  });

  await t.test('a job ends when more nodes have failed than may', async (t) => {
    const { id } = await createdJob(a, { command: 'exit 1', servers, concurrency: 1, max_failures: 1 });
    t.match(await endedJob(a, id), {
      status: 'aborted',
      reason: /2 nodes failed/,
      counts: { failed: 2, was_ready: 4 },
    });
  });

  await t.test('secret variables are shown to nobody, and are gone when the job has ended', async (t) => {
    const { id } = await createdJob(a, {
      command: 'echo $PASSWORD',
      servers: servers.slice(0, 1),
      env: { PASSWORD: 'hunter2' },
      secret_env: ['PASSWORD'],
    });
    t.match(await endedJob(a, id), { status: 'complete', env: { PASSWORD: '(secret)' } });
    const { rows } = await zone.database.query<{ job: string }>(
      'select row_to_json(j)::text as job from cnapi_push_jobs j where id = $1::uuid',
      [id],
    );
    t.notMatch(rows[0]?.job, /hunter2/);
  });

  await t.test('a file is deleted when its job has ended, and the job still shows that it had one', async (t) => {
    for (const secret of [{}, { env: { PASSWORD: 'hunter2' }, secret_env: ['PASSWORD'] }]) {
      const job = { command: 'true', servers: servers.slice(0, 1), file: 'raw:hello', ...secret };
      const { id } = await createdJob(a, job);
      t.match(await endedJob(a, id), { status: 'complete', file_specified: true });
      const { rows } = await zone.database.query('select file from cnapi_push_jobs where id = $1::uuid', [id]);
      t.strictSame(rows, [{ file: null }]);
    }
  });

  await t.test('the duty of a job that is deleted ends', async (t) => {
    const { id } = await createdJob(a, { command: 'sleep 300', servers });
    await until(async () => (await a.get<PushJob>(`/push-jobs/${id}`)).body.counts.running === 6);
    await zone.database.query('delete from cnapi_push_jobs where id = $1::uuid', [id]);
    await until(async () => {
      const { rows } = await zone.database.query<{ state: string }>(
        'select state from cnapi_duties where id = $1::uuid',
        [id],
      );
      return rows[0]?.state === 'ended';
    }, 'the duty to end');
    await zone.database.query('update cnapi_push_busy set rehab_since = cnapi_now() where job = $1::uuid', [id]);
    const next = await until(async () => {
      const job = await createdJob(b, { command: 'echo', servers });
      const end = await endedJob(b, job.id);
      return end.status === 'complete' && end;
    }, 'the servers to be free again');
    t.match(next, { counts: { succeeded: 6 } });
  });

  await t.test('each status of a job is an event', async (t) => {
    const { id } = await createdJob(a, { command: 'echo', servers });
    await endedJob(b, id);
    const seen = await until(async () => {
      const { rows } = await zone.database.query<{ status: string }>(
        `select body->>'status' as status from cnapi_event_outbox where kind = 'push_job' and body->>'id' = $1::text
           union select body->>'status' from cnapi_events where kind = 'push_job' and body->>'id' = $1::text`,
        [id],
      );
      return rows.length >= 3 ? rows.map(({ status }) => status).sort() : undefined;
    });
    t.same(seen, ['complete', 'running', 'voting']);
  });

  await t.test('a job that runs cannot be deleted; one that has ended can', async (t) => {
    const { id } = await createdJob(a, { command: 'sleep 300', servers: servers.slice(0, 1) });
    t.equal(await a.delete(`/push-jobs/${id}`), 409);
    await fetch(`${b.url}/push-jobs/${id}/abort`, { method: 'PUT' });
    await endedJob(a, id);
    t.equal(await a.delete(`/push-jobs/${id}`), 204);
    t.equal((await b.get(`/push-jobs/${id}`)).status, 404);
    t.equal((await fetch(`${b.url}/push-jobs/${id}/abort`, { method: 'PUT' })).status, 404);
  });
});

t.test('nodes and instances that go away', async (t) => {
  const zone = await freshZone(t);
  const a = await zone.startApp();
  const b = await zone.startApp();
  const agents = await startAgents(t, [a, b], 4);
  const servers = agents.map(({ serverUuid }) => serverUuid);

  await t.test('a job whose coordinator stops is continued by another instance, and says by which', async (t) => {
    const c = await zone.startApp();
    const job = async (app: typeof a, id: string) => (await app.get<PushJob>(`/push-jobs/${id}`)).body;
    const id = await until(async () => {
      const made = await createdJob(c, { command: 'sleep 4', servers, concurrency: 2 });
      await until(async () => (await job(a, made.id)).counts.running === 2, 'the first commands');
      if ((await job(b, made.id)).coordinator === c.cnapiUuid) return made.id;
      await fetch(`${c.url}/push-jobs/${made.id}/abort`, { method: 'PUT' });
      await endedJob(a, made.id);
      return undefined;
    }, 'a job that the third instance carries out');
    const { body: list } = await a.get<{ jobs: PushJob[] }>('/push-jobs');
    t.notOk(list.jobs.some((one) => 'coordinator' in one));
    await c.stop();
    await until(async () => {
      const next = (await job(a, id)).coordinator;
      return [a, b].some(({ cnapiUuid }) => cnapiUuid === next);
    }, 'another one to carry it out');
    t.match(await endedJob(a, id), { status: 'complete', counts: { succeeded: 4 } });
    t.equal((await job(b, id)).coordinator, null, 'and none after its end');
  });

  await t.test('a node that crashes while it runs is crashed, and never part of this job again', async (t) => {
    const { id } = await createdJob(a, { command: 'sleep 300', servers, quorum: 1 });
    await until(async () => (await a.get<PushJob>(`/push-jobs/${id}`)).body.counts.running === 4);
    agents[0]?.crash();
    await until(async () => (await a.get<PushJob>(`/push-jobs/${id}`)).body.counts.crashed === 1);
    await fetch(`${b.url}/push-jobs/${id}/abort`, { method: 'PUT' });
    t.match(await endedJob(a, id), { status: 'aborted', counts: { crashed: 1, aborted: 3 } });
  });

  await t.test('a node that is down takes no part', async (t) => {
    const { id } = await createdJob(a, { command: 'echo', servers, quorum: 3 });
    t.match(await endedJob(b, id), { status: 'complete', counts: { unavailable: 1, succeeded: 3 } });
    t.match(
      (await nodesOfJob(a, id)).find(({ status }) => status === 'unavailable'),
      { server_uuid: servers[0], reason: 'down' },
    );
  });
});

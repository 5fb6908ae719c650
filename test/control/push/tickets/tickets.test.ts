/** Push jobs that hold a ticket, through real instances and Postgres. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import type { PushJob } from '../../../../lib/protocol/api/push/job-schemas.ts';
import type { Ticket } from '../../../../lib/protocol/api/tickets.ts';
import { freshZone, type TestApp } from '../../../support/apps.ts';
import { startAgents } from '../../../support/simulated-agents.ts';
import { until } from '../../../support/until.ts';
import { ENDS } from '../jobs.ts';

t.test('a zone of two instances', async (t) => {
  const zone = await freshZone(t);
  const a = await zone.startApp();
  const b = await zone.startApp();
  const agents = await startAgents(t, [a, b], 3);
  const servers = agents.map(({ serverUuid }) => serverUuid);
  const at = (id: string) => ({ server_uuid: 'default', scope: 'rollout', id });

  const created = async (app: TestApp, body: Record<string, unknown>) => {
    const { status, body: job } = await app.post<PushJob>('/push-jobs', { command: 'echo', servers, ...body });
    if (status !== 201) throw new Error(`${status} ${JSON.stringify(job)}`);
    return job;
  };
  const jobOf = async (id: string) => (await b.get<PushJob>(`/push-jobs/${id}`)).body;
  const reaches = (id: string, ...statuses: string[]) =>
    until(
      async () => {
        const job = await jobOf(id);
        return statuses.includes(job.status) ? job : undefined;
      },
      `push job ${id} to be ${statuses.join(' or ')}`,
    );
  const held = async (id: string) => {
    const { body } = await a.post<{ uuid: string }>('/servers/default/tickets', {
      scope: 'rollout',
      id,
      expires_in: 600,
    });
    return body.uuid;
  };
  const ticketOf = (id: string) =>
    until(async () => (await jobOf(id)).ticket?.uuid, 'the job to take its ticket').then(
      async (uuid) => (await b.get<Ticket>(`/tickets/${uuid}`)).body,
    );
  const released = (uuid: string) =>
    until(
      async () => (await a.get<Ticket>(`/tickets/${uuid}`)).body.status === 'finished',
      'the ticket to be released',
    );
  const put = (path: string) => fetch(`${b.url}${path}`, { method: 'PUT' });
  const owed = async () => (await zone.database.query('select from cnapi_push_tickets')).rows.length;

  await t.test('a job waits for its ticket, holds it while it runs, and releases it', async (t) => {
    const mine = await held('one');
    const { id, status, ticket } = await created(a, {
      ...{ ticket: { scope: 'rollout', id: 'one' }, command: 'sleep 1', servers: servers.slice(0, 2) },
    });
    t.equal(status, 'waiting');
    t.match(ticket, { ...at('one'), expires_in: 3600, timeout_ms: 600_000 });
    const queued = await ticketOf(id);
    t.match(queued, { status: 'queued', action: 'push-job', extra: { push_job: id }, actor: 'open' });
    t.match(await jobOf(id), { status: 'waiting', counts: { new: 2 } }, 'it has asked nobody');
    t.match(await a.post(`/push-jobs/${id}/nodes`, { servers: servers.slice(2) }), {
      status: 409,
      body: { code: 'PushJobNotChangeable', message: /waits for its ticket, .* add them when it votes/ },
    });
    await put(`/tickets/${mine}/release`);
    await reaches(id, 'running');
    t.match((await a.get<Ticket>(`/tickets/${queued.uuid}`)).body, { status: 'active' });
    t.match(await reaches(id, 'complete'), { counts: { succeeded: 2 } });
    await released(queued.uuid);
    await until(async () => (await owed()) === 0, 'the job to owe nothing');
  });

  await t.test('jobs with one ticket run one after the other', async (t) => {
    const command = 'sleep 0.5';
    const [first, second] = [
      await created(a, { ticket: { scope: 'rollout', id: 'two' }, command, servers: servers.slice(0, 1) }),
      await created(b, { ticket: { scope: 'rollout', id: 'two' }, command, servers: servers.slice(1, 2) }),
    ];
    await Promise.all([first, second].map(({ id }) => reaches(id, 'complete')));
    const { rows } = await zone.database.query<{ begun: Date; ended: Date }>(
      `select min(t.claimed_at) as begun, max(t.ended_at) as ended from cnapi_push_nodes n join cnapi_tasks t on t.id = n.task
         where n.job = any ($1::uuid[]) group by n.job order by begun`,
      [[first.id, second.id]],
    );
    t.ok(rows.length === 2 && (rows[0]?.ended ?? 0) <= (rows[1]?.begun ?? 0));
  });

  await t.test('a job that waits can be aborted, and its place in the queue is free', async (t) => {
    const mine = await held('three');
    const { id } = await created(a, { ticket: { scope: 'rollout', id: 'three' } });
    const { uuid } = await ticketOf(id);
    t.equal((await put(`/push-jobs/${id}/abort`)).status, 202);
    t.match(await reaches(id, ...ENDS), { status: 'aborted', counts: { unavailable: 3 } });
    await released(uuid);
    await put(`/tickets/${mine}/release`);
  });

  await t.test('a job whose ticket does not come in time is timed out, without asking anybody', async (t) => {
    const mine = await held('four');
    const { id } = await created(a, { ticket: { scope: 'rollout', id: 'four', timeout_ms: 300 } });
    t.match(await reaches(id, ...ENDS), { status: 'timed_out', reason: /ticket/, counts: { unavailable: 3 } });
    await put(`/tickets/${mine}/release`);
  });

  await t.test('a job whose ticket somebody takes away stops its commands', async (t) => {
    const { id } = await created(a, { ticket: { scope: 'rollout', id: 'five' }, command: 'sleep 300' });
    await until(async () => (await jobOf(id)).counts.running === 3);
    const { uuid } = await ticketOf(id);
    t.equal((await fetch(`${a.url}/tickets/${uuid}`, { method: 'DELETE' })).status, 204);
    t.match(await reaches(id, ...ENDS), { status: 'aborted', reason: /ticket/, counts: { aborted: 3 } });
    await until(async () => (await owed()) === 0, 'the job to owe nothing');
  });

  await t.test('a job that was deleted at its end still releases its ticket', async (t) => {
    const { id } = await created(a, { ticket: { scope: 'rollout', id: 'six' }, command: 'sleep 300' });
    await until(async () => (await jobOf(id)).counts.running === 3);
    const { uuid } = await ticketOf(id);
    await zone.database.query('delete from cnapi_push_jobs where id = $1::uuid', [id]);
    await released(uuid);
    await zone.database.query('update cnapi_push_busy set rehab_since = cnapi_now() where job = $1::uuid', [id]);
    const busy = async () => (await zone.database.query('select from cnapi_push_busy')).rows.length;
    await until(async () => (await busy()) === 0, 'the servers to be free again');
    t.equal(await owed(), 0);
  });

  await t.test('a ticket that cannot exist is refused, and no job is created', async (t) => {
    const count = async () => (await a.get<{ jobs: unknown[] }>('/push-jobs')).body.jobs.length;
    const before = await count();
    for (const ticket of [
      'one',
      { scope: 'rollout' },
      { scope: '', id: 'x' },
      { scope: 'rollout', id: 'x', expires_in: 1 },
      { scope: 'rollout', id: 'x', owner: 'me' },
      { scope: 'é'.repeat(200), id: 'x' },
      { scope: 'rollout', id: 'x', server_uuid: randomUUID() },
    ]) {
      const { status, body } = await a.post('/push-jobs', { command: 'echo', servers, ticket });
      t.match({ status, body }, { status: 400, body: { errors: { 0: { field: 'ticket' } } } }, JSON.stringify(ticket));
    }
    t.equal(await count(), before);
  });

  await t.test('another instance keeps and releases the ticket of a job whose instance stops', async (t) => {
    const { id } = await created(a, {
      ticket: { scope: 'rollout', id: 'seven', expires_in: 30 },
      command: 'sleep 300',
    });
    await until(async () => (await jobOf(id)).counts.running === 3);
    const { uuid, expires_at: before } = await ticketOf(id);
    const holder = await holderOf(id);
    const [dying, living] = holder === a.cnapiUuid ? [a, b] : [b, a];
    await dying.stop();
    await until(async () => (await holderOf(id)) === living.cnapiUuid, 'the other instance to take over');
    await until(async () => {
      const { body } = await living.get<Ticket>(`/tickets/${uuid}`);
      return body.status === 'active' && body.expires_at > before;
    }, 'the ticket to be renewed');
    t.equal((await fetch(`${living.url}/push-jobs/${id}/abort`, { method: 'PUT' })).status, 202);
    await until(async () => (await living.get<Ticket>(`/tickets/${uuid}`)).body.status === 'finished', 'its release');
  });

  async function holderOf(job: string): Promise<string | undefined> {
    const { rows } = await zone.database.query<{ cnapi_uuid: string }>(
      `select i.cnapi_uuid from cnapi_duties d join cnapi_instances i on i.run = d.run where d.id = $1::uuid and d.state = 'held'`,
      [job],
    );
    return rows[0]?.cnapi_uuid;
  }
});

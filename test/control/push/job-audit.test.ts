/** What the audit of an instance keeps about push jobs. */
import t from 'tap';
import type { AuditRecord } from '../../../lib/protocol/api/audit.ts';
import { freshZone } from '../../support/apps.ts';
import { matchLists } from '../../support/match-lists.ts';
import { startAgents } from '../../support/simulated-agents.ts';
import { createdJob, endedJob } from './jobs.ts';

t.test('the audit of push jobs', async (t) => {
  const zone = await freshZone(t);
  const a = await zone.startApp();
  const agents = await startAgents(t, [a], 6);
  const servers = agents.map(({ serverUuid }) => serverUuid);
  const recordsOf = async (object: string) => (await a.get<AuditRecord[]>(`/audit?object=${object}`)).body;

  await t.test('tells what a deleted job was and how it ended, without its secrets', async (t) => {
    const { id } = await createdJob(a, {
      command: 'exit 3',
      servers,
      env: { PASSWORD: 'hunter2', MODE: 'fast' },
      secret_env: ['PASSWORD'],
      file: 'raw:hunter2',
    });
    await endedJob(a, id);
    t.equal(await a.delete(`/push-jobs/${id}`), 204);
    const records = await recordsOf(id);
    const [deletion, creation] = records;
    matchLists(t, deletion, {
      action: 'DeletePushJob',
      details: { command: 'exit 3', status: 'complete', node_count: 6, counts: { failed: 6 }, actor: 'open' },
    });
    matchLists(t, creation, {
      action: 'CreatePushJob',
      details: { command: 'exit 3', env: { PASSWORD: '(secret)', MODE: 'fast' }, file_specified: true, node_count: 6 },
    });
    t.match(creation?.details, { nodes: { length: 6 } });
    t.notMatch(JSON.stringify(records), /hunter2/);
  });

  await t.test('names servers that are added to a job', async (t) => {
    const [last = ''] = servers.slice(-1);
    const { id } = await createdJob(a, { command: 'sleep 60', servers: servers.slice(0, -1) });
    t.equal((await a.post(`/push-jobs/${id}/nodes`, { servers: [last] })).status, 201);
    const [addition] = await recordsOf(id);
    matchLists(t, addition, { action: 'AddPushNodes', details: { node_count: 1 } });
    t.match(addition?.details, { nodes: { length: 1 } });
    // While the agents are busy with it, the next job could end for want of votes.
    t.equal((await a.put(`/push-jobs/${id}/abort`, {})).status, 202);
    await endedJob(a, id);
  });

  await t.test('finds by a server all that was done to it in a job, also after the job was deleted', async (t) => {
    const [first = '', second = '', third = ''] = servers;
    const { id } = await createdJob(a, { command: 'sleep 60', servers: [first, second], quorum: 1 });
    t.equal((await a.post(`/push-jobs/${id}/nodes`, { servers: [third] })).status, 201);
    t.equal((await a.post(`/push-jobs/${id}`, { concurrency: 7 })).status, 200);
    t.equal((await a.put(`/push-jobs/${id}/abort`, { nodes: [second], soft: true })).status, 202);
    t.equal((await a.put(`/push-jobs/${id}/abort`, {})).status, 202);
    await endedJob(a, id);
    t.equal(await a.delete(`/push-jobs/${id}`), 204);
    const actionsOn = async (server: string, more = '') =>
      (await a.get<AuditRecord[]>(`/audit?server=${server}&${more}`)).body
        .filter(({ object }) => object === id)
        .map(({ action }) => action);
    t.same(await actionsOn(first), ['CreatePushJob']);
    t.same(await actionsOn(second), ['AbortPushJob', 'CreatePushJob']);
    t.same(await actionsOn(third), ['AddPushNodes']);
    t.same(await actionsOn(second, 'limit=1'), ['AbortPushJob'], 'the newest first');
    t.same(await actionsOn(second, 'action=CreatePushJob'), ['CreatePushJob']);
    const changes = (await recordsOf(id)).map(({ action, details }) => ({ action, details }));
    matchLists(t, changes.slice(1, 4), [
      { action: 'AbortPushJob', details: { how: 'hard' } },
      { action: 'AbortPushJob', details: { how: 'soft', node_count: 1, nodes: [second] } },
      { action: 'ChangePushJob', details: { concurrency: 7 } },
    ]);
  });

  await t.test('says how the servers of a job were selected', async (t) => {
    const where = ['hostname=*', 'status=running'];
    const { id } = await createdJob(a, { command: 'true', where });
    const [creation] = await recordsOf(id);
    matchLists(t, creation?.details, { where, node_count: 6 });
    await endedJob(a, id);
    const retry = await createdJob(a, { command: 'true', from_job: id });
    const [again] = await recordsOf(retry.id);
    matchLists(t, again?.details, { from_job: id, node_count: 6 });
  });

  await t.test('has a bounded part of a long command, also one with characters of two halves', async (t) => {
    const command = `echo ${'x'.repeat(1_994)}\u{1F600}${'y'.repeat(8_000)}`;
    const env = Object.fromEntries(Array.from({ length: 50 }, (_, each) => [`V${each}`, 'z'.repeat(1_000)]));
    const { id } = await createdJob(a, { command, env, servers });
    const [creation] = await recordsOf(id);
    t.match(creation?.details, { command: /^echo x{1994}/ });
    t.ok(JSON.stringify(creation?.details).length < 4_096);
  });

  await t.test('tells the command of a schedule', async (t) => {
    const body = { at: '2090-01-01T00:00:00Z', job: { command: 'reboot', servers } };
    const [server = ''] = servers;
    const { status, body: schedule } = await a.post<{ id: string }>('/push-schedules', body);
    t.equal(status, 201);
    matchLists(t, await recordsOf(schedule.id), [{ action: 'CreatePushSchedule', details: { command: 'reboot' } }]);
    const { body: records } = await a.get<AuditRecord[]>(`/audit?server=${server}&action=CreatePushSchedule`);
    t.same(
      records.map(({ object }) => object),
      [schedule.id],
    );
  });

  await t.test('tells as what a schedule runs, and what a change gives to it', async (t) => {
    const env = { LD_PRELOAD: '/tmp/evil.so', LONG: 'x'.repeat(1_000), COUNT: 1 };
    const options = { user: 'root', dir: '/srv', capture_output: true };
    const kept = { ...options, env: { ...env, LONG: 'x'.repeat(40), COUNT: '1' }, file_specified: true };
    const job = { command: 'sh $CHEF_PUSH_JOB_FILE', where: ['hostname=*'], ...options, env, file: 'raw:program' };
    const body = { at: '2090-01-01T00:00:00Z', job };
    const { id } = (await a.post<{ id: string }>('/push-schedules', body)).body;
    const change = async (members: object) =>
      t.equal((await a.post(`/push-schedules/${id}`, { job: members })).status, 200);
    await change({ user: null, dir: null, env: null, file: null, capture_output: null });
    await change({ ...options, env, file: 'raw:planted' });
    const [planted, removed, created] = (await recordsOf(id)).map(({ details }) => details);
    t.same(created, { command: job.command, where: job.where, ...kept });
    matchLists(t, removed, { job_fields: ['user', 'dir', 'env', 'file', 'capture_output'], file_specified: false });
    t.same(planted, { job_fields: ['user', 'dir', 'capture_output', 'env', 'file'], ...kept });
  });

  await t.test('tells who ran a schedule, and what was changed in it', async (t) => {
    const [server = ''] = servers;
    const body = { at: '2090-01-01T00:00:00Z', overlap: 'allow', job: { command: 'true', servers } };
    const { id } = (await a.post<{ id: string }>('/push-schedules', body)).body;
    const change = { overlap: 'skip', job: { command: 'exit 3', servers: [server], quorum: null } };
    t.equal((await a.post(`/push-schedules/${id}`, change)).status, 200);
    const { status, body: job } = await a.post<{ id: string }>(`/push-schedules/${id}/run`, {});
    t.equal(status, 201);
    const actions = (await recordsOf(id)).map(({ action, details }) => ({ action, details }));
    matchLists(t, actions, [
      {
        action: 'UpdatePushSchedule',
        details: { overlap: 'skip', command: 'exit 3', node_count: 1, job_fields: ['command', 'servers', 'quorum'] },
      },
      { action: 'CreatePushSchedule' },
    ]);
    const [creation] = await recordsOf(job.id);
    matchLists(t, creation, {
      action: 'RunPushSchedule',
      actor: 'open',
      details: { push_schedule: id, command: 'exit 3', node_count: 1 },
    });
    const { body: found } = await a.get<AuditRecord[]>(`/audit?server=${server}&action=RunPushSchedule`);
    t.same(
      found.map(({ object }) => object),
      [job.id],
    );
    await endedJob(a, job.id);
  });
});

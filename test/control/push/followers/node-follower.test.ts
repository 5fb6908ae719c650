/** The stream of a push job, through real instances, Postgres, and agents on simulated machines. */
import t from 'tap';
import { follow } from '../../../../lib/client/follow.ts';
import { followPushJob } from '../../../../lib/client/follow-push-job.ts';
import type { PushEvent } from '../../../../lib/protocol/api/push/events.ts';
import type { PushJob } from '../../../../lib/protocol/api/push/job-schemas.ts';
import { failoverClient } from '../../../client/rig.ts';
import { freshZone, type TestApp } from '../../../support/apps.ts';
import { startAgents } from '../../../support/simulated-agents.ts';

async function created(app: TestApp, body: Record<string, unknown>): Promise<string> {
  const { status, body: job } = await app.post<PushJob>('/push-jobs', body);
  if (status !== 201) throw new Error(`${status} ${JSON.stringify(job)}`);
  return job.id;
}

const abort = (app: TestApp, id: string) => fetch(`${app.url}/push-jobs/${id}/abort`, { method: 'PUT' });

t.test('following a push job', async (t) => {
  const zone = await freshZone(t);
  const a = await zone.startApp();
  const b = await zone.startApp();
  const agents = await startAgents(t, [a, b], 20);
  const servers = agents.map(({ serverUuid }) => serverUuid);

  await t.test('one stream has the output of all nodes, each before the end of its node', async (t) => {
    const id = await created(a, { command: 'echo hello', servers, concurrency: 5 });
    const events: PushEvent[] = [];
    for await (const event of followPushJob(failoverClient(t, [b.url]), id)) events.push(event);
    t.match(events.at(-1), { event: 'job', data: { status: 'complete' } });
    for (const server of servers) {
      const own = events.filter(({ data }) => 'server_uuid' in data && data.server_uuid === server);
      const output = own.findIndex(({ data }) => 'event' in data && data.event.name === 'output');
      const end = own.findIndex(({ data }) => 'event' in data && data.event.name === 'end');
      t.match(own[output], { data: { event: { data: { stream: 'stdout', text: 'hello\n' } } } });
      t.match(own.at(-1), { event: 'node', data: { status: 'succeeded', exit_code: 0 } });
      t.ok(output >= 0 && output < end && end < own.length - 1, 'output, the end of the task, the end of the node');
    }
  });

  await t.test('another instance continues a stream: nodes that had not ended are sent again', async (t) => {
    const id = await created(a, { command: 'sleep 300', servers: servers.slice(0, 2) });
    const first = follow(failoverClient(t, [a.url]), { path: `/push-jobs/${id}/events` });
    let position: string | undefined;
    for await (const { id: at, name, data } of first) {
      position = at ?? position;
      if (name === 'task' && JSON.parse(data).event.name === 'started') break;
    }
    const names: string[] = [];
    await abort(a, id);
    const path = `/push-jobs/${id}/events`;
    for await (const { name, data } of follow(failoverClient(t, [b.url]), { path, after: position })) {
      if (name === 'task') names.push(`${JSON.parse(data).server_uuid} ${JSON.parse(data).event.name}`);
      if (name === 'job' && JSON.parse(data).status === 'aborted') break;
    }
    for (const server of servers.slice(0, 2)) {
      t.ok(names.includes(`${server} started`));
      t.ok(names.includes(`${server} end`));
    }
  });

  await t.test('a node that never ran is reported with its reason', async (t) => {
    const slow = await created(a, { command: 'sleep 300', servers: servers.slice(0, 1) });
    for await (const event of followPushJob(failoverClient(t, [a.url]), slow))
      if (event.event === 'job' && event.data.status === 'running') break;
    const id = await created(b, { command: 'echo', servers: servers.slice(0, 2), quorum: 1 });
    const ends = new Map<string, unknown>();
    for await (const event of followPushJob(failoverClient(t, [b.url]), id))
      if (event.event === 'node') ends.set(event.data.server_uuid, event.data);
    t.match(ends.get(servers[0] ?? ''), { status: 'nacked', reason: 'busy', busy_with: slow });
    t.match(ends.get(servers[1] ?? ''), { status: 'succeeded' });
    await abort(a, slow);
  });

  await t.test('after a step back of the clock of the database, the ends of all nodes are sent', async (t) => {
    const id = await created(a, { command: 'echo', servers: servers.slice(0, 3) });
    for await (const event of followPushJob(failoverClient(t, [a.url]), id)) if (event.event === 'job') continue;
    const path = `/push-jobs/${id}/events`;
    const after = new Date(Date.now() + 60_000).toISOString();
    const ends = new Set<string>();
    for await (const { name, data } of follow(failoverClient(t, [b.url]), { path, after })) {
      if (name === 'node') ends.add(JSON.parse(data).server_uuid);
      if (name === 'job') break;
    }
    t.equal(ends.size, 3);
  });

  await t.test('wrong positions and unknown jobs are refused', async (t) => {
    t.equal((await a.get(`/push-jobs/${servers[0]}/events`)).status, 404);
    const id = await created(a, { command: 'true', servers: servers.slice(5, 6) });
    for (const after of ['yesterday', '2030-02-30T00:00:00.000Z'])
      t.equal((await a.get(`/push-jobs/${id}/events?after=${after}`)).status, 400, after);
    t.equal((await fetch(`${a.url}/push-jobs/${id}/events?after=end`)).status, 204);
  });
});

/** Chef's feeds as their followers read them, at two instances. */
import t, { type Test } from 'tap';
import type { TestApp } from '../../../support/apps.ts';
import { EventFollower, type HeardEvent } from '../../../support/event-follower.ts';
import { until } from '../../../support/until.ts';
import { asked, ended, JOBS, startAcme } from '../acme.ts';

const FEED = '/organizations/acme/pushy/job_status_feed';
const TIME = /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}Z$/;

async function followed(t: Test, app: TestApp, path: string, lastEventId = ''): Promise<EventFollower> {
  const follower = await EventFollower.openAt(`${app.url}${path}`, lastEventId);
  t.teardown(() => follower.close());
  return follower;
}

/** All events of a feed that ends. */
async function whole(t: Test, app: TestApp, id: string, lastEventId = ''): Promise<HeardEvent[]> {
  const follower = await followed(t, app, `${FEED}/${id}`, lastEventId);
  await until(() => follower.isEnded, 'the end of the feed');
  return follower.events;
}

const toldOf = ({ kind, data }: HeardEvent) => [kind, data.node, data.status].filter(Boolean).join(' ');
const isOf = (job: string) => (event: HeardEvent) => event.data.job === job;

t.test('an organization with two nodes', async (t) => {
  const { zone, a, b, names } = await startAcme(t, 2);
  const nodes = names.slice(0, 2).toSorted();
  const start = async (body: object) => (await asked(a, 'POST', JOBS, { body: { nodes, ...body } })).body.id;

  await t.test('each instance tells all that happens to a job, from its start to its end', async (t) => {
    const id = await start({ command: 'sleep 1', run_timeout: 60, env: { A: '1' } });
    const [atA, atB] = await Promise.all([whole(t, a, id), whole(t, b, id)]);
    t.same(atA, atB);
    t.same(
      atA.map((event) => event.id),
      atA.map((_, index) => `job-${index + 1}`),
    );
    t.match(atA[0], {
      kind: 'start',
      data: {
        command: 'sleep 1',
        run_timeout: 60,
        quorum: 2,
        node_count: 2,
        user: 'open',
        env: { A: '1' },
        capture: false,
      },
    });
    t.same(atA.slice(1).map(toldOf).sort(), [
      'job_complete complete',
      'quorum_succeeded',
      ...nodes.map((name) => `quorum_vote ${name} success`),
      ...nodes.map((name) => `run_complete ${name} success`),
      ...nodes.map((name) => `run_start ${name}`),
    ]);
    t.equal(atA.at(-1)?.kind, 'job_complete');
    const times = atA.map(({ data }) => data.timestamp);
    t.ok(times.every((time, index) => TIME.test(time) && (index === 0 || time > times[index - 1])));
  });

  await t.test('a follower continues at another instance; later it gets a summary', async (t) => {
    const id = await start({ command: 'sleep 1' });
    const first = await followed(t, a, `${FEED}/${id}`);
    await until(() => first.events.length >= 3, 'some events');
    first.close();
    const head = first.events.slice(0, 3);
    const rest = await whole(t, b, id, 'job-3');
    const all = await whole(t, b, id, 'job-99999');
    t.same([...head, ...rest], all, 'an unknown id begins again');
    await zone.database.query(`update cnapi_push_jobs set state_since = state_since - interval '6 seconds'`);
    for (const last of ['', 'job-1', 'job-99999']) {
      const [summary, ...more] = await whole(t, a, id, last);
      t.match(summary, {
        id: 'job-1',
        kind: 'summary',
        data: { id, status: 'complete', nodes: Object, timestamp: TIME },
      });
      t.same(summary?.data.nodes, { succeeded: nodes });
      t.same(more, []);
    }
    t.same(await whole(t, a, id, 'job-3'), rest, 'who continues misses nothing');
  });

  await t.test('a feed is not gathered by proxies', async (t) => {
    const { id } = (await asked(a, 'GET', `${JOBS}?limit=1`)).body[0];
    const { status, headers } = await asked(a, 'GET', `${FEED}/${id}`, { headers: { Accept: 'text/event-stream' } });
    t.equal(status, 200);
    t.equal(headers.get('x-accel-buffering'), 'no');
    t.equal(headers.get('content-type'), 'text/event-stream');
  });

  await t.test('the feed of an organization has its starts and ends, and continues at any instance', async (t) => {
    const atA = await followed(t, a, FEED);
    const other = await followed(t, b, '/organizations/other/pushy/job_status_feed');
    await until(() => atA.lastEventId !== '', 'a first place');
    t.same(atA.events, [], 'nothing of what happened before');
    const place = atA.lastEventId;
    const id = await start({ command: 'echo' });
    await ended(a, id);
    const end = await atA.next((event) => isOf(id)(event) && event.kind === 'job_complete', 'the end of the job');
    t.match(end, { id: /^org-/, data: { job: id, status: 'complete', timestamp: TIME } });
    t.match(atA.events.filter(isOf(id))[0], { kind: 'start', data: { command: 'echo', node_count: 2, user: 'open' } });

    const atB = await followed(t, b, FEED, place);
    await atB.next((event) => event.id === end.id, 'the end of the job, again');
    t.same(atB.events, atA.events);
    const next = await followed(t, b, FEED, end.id);
    const second = await start({ command: 'echo' });
    await next.next((event) => isOf(second)(event) && event.kind === 'start', 'the next job');
    t.ok(next.events.every(isOf(second)), 'nothing is repeated');
    t.same(other.events, [], 'another organization hears of none of them');
    await ended(a, second);
  });

  await t.test('an id that is not known begins with the last minute', async (t) => {
    const ids = (await asked(a, 'GET', JOBS)).body.map((job: { id: string }) => job.id);
    for (const last of ['org-1', 'start_id', 'job-1', 'org-999999999-zzz']) {
      const follower = await followed(t, b, FEED, last);
      for (const id of ids)
        await follower.next(
          (event) => isOf(id)(event) && event.kind === 'job_complete',
          `the end of ${id} after ${last}`,
        );
      t.match(follower.events[0], { kind: 'start_of_history', id: 'start_id', data: { timestamp: TIME } });
      follower.close();
    }
  });

  await t.test('the feed of a job ends when the job is deleted', async (t) => {
    const id = await start({ command: 'sleep 300' });
    const follower = await followed(t, b, `${FEED}/${id}`);
    await follower.next((event) => event.kind === 'run_start', 'a start');
    await zone.database.query(`delete from cnapi_push_jobs where command = 'sleep 300'`);
    await until(() => follower.isEnded, 'the end of the feed');
  });
});

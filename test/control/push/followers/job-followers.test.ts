/** The feed of a push job of an organization: written by its coordinator, sent by any instance. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { type FeedEvent, readFeed } from '../../../../lib/control/push/followers/feed-store.ts';
import { PushJobFollowers } from '../../../../lib/control/push/followers/job-followers.ts';
import { createPushJob, type NewPushJob } from '../../../../lib/control/push/push-store.ts';
import { migrations } from '../../../../lib/control/subsystem-list.ts';
import { silentLogger as log } from '../../../../lib/platform/log.ts';
import { systemRandom as random } from '../../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../../lib/platform/time/clock.ts';
import { freshZone } from '../../../support/apps.ts';
import { createMemoryBus, MemoryHub } from '../../../support/memory-bus.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import { startAgents } from '../../../support/simulated-agents.ts';
import { until } from '../../../support/until.ts';

const jobOf = (nodes: NewPushJob['nodes'], further: Partial<NewPushJob> = {}): NewPushJob => ({
  id: randomUUID(),
  organization: 'acme',
  command: 'echo hello',
  options: {},
  maskedOptions: undefined,
  file: undefined,
  nodes,
  quorum: 1,
  concurrency: undefined,
  maxFailures: undefined,
  votingTimeoutMs: 60_000,
  runTimeoutMs: 60_000,
  abortTimeoutMs: 60_000,
  actor: 'alice',
  ...further,
});

const toldOf = ({ name, node, status }: FeedEvent) => [name, node, status].filter((part) => part !== null).join(' ');

t.test('what the feed tells of a node', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  for (const [was, state, reason, told] of [
    ['new', 'ready', null, ['quorum_vote success']],
    ['new', 'nacked', 'busy', ['quorum_vote failure']],
    ['new', 'failed', 'permission-denied', ['quorum_vote failure']],
    ['new', 'unavailable', 'down', ['quorum_vote down', 'rehab']],
    ['new', 'unavailable', 'stopping', ['quorum_vote down', 'rehab']],
    ['new', 'unavailable', 'no-vote', ['quorum_vote voting_timeout']],
    ['new', 'unavailable', 'job-ended', ['quorum_vote voting_timeout']],
    ['new', 'unavailable', 'StartRefused', ['quorum_vote success', 'rehab', 'run_complete run_nacked']],
    ['new', 'succeeded', null, ['quorum_vote success', 'run_start', 'run_complete success']],
    ['new', 'was_ready', 'job-ended', ['quorum_vote success']],
    ['ready', 'unavailable', 'restarted', ['quorum_vote down', 'rehab']],
    ['ready', 'unavailable', 'start-late', ['quorum_vote lost_availibility', 'rehab']],
    ['ready', 'unavailable', 'NotTaken', ['rehab', 'run_complete run_nacked']],
    ['ready', 'running', null, ['run_start']],
    ['ready', 'failed', null, ['run_start', 'run_complete failure']],
    ['ready', 'was_ready', 'job-ended', []],
    ['ready', 'timed_out', 'job-ended', []],
    ['running', 'succeeded', null, ['run_complete success']],
    ['running', 'failed', null, ['run_complete failure']],
    ['running', 'aborted', 'Aborted', ['run_complete aborted']],
    ['running', 'crashed', 'down', ['rehab', 'run_complete crashed']],
    ['running', 'timed_out', 'TaskTimeout', []],
  ] as const) {
    const { rows } = await database.query<{ told: string }>(
      `select concat_ws(' ', name, status) as told from cnapi_events_of_push_node($1::text, $2::text, $3::text)
         order by place`,
      [was, state, reason],
    );
    t.same(
      rows.map((row) => row.told),
      told,
      `${was} -> ${state} ${reason ?? ''}`,
    );
  }
});

t.test('a zone of two instances', async (t) => {
  const zone = await freshZone(t);
  const a = await zone.startApp();
  const b = await zone.startApp();
  const agents = await startAgents(t, [a, b], 3);
  const nodes = agents.map(({ serverUuid }, index) => ({ serverUuid, name: `web-${index}` }));
  const followers = new PushJobFollowers({
    database: zone.database,
    bus: createMemoryBus({ hub: new MemoryHub(), clock, random, log }),
    clock,
    log,
    config: { slowPollMs: 100, slowPollNoBusMs: 100 },
  });
  followers.start();
  t.teardown(() => followers.stop());

  const followed = async (job: string, after = 1) => {
    const events: FeedEvent[] = [];
    for await (const event of followers.feed(job, after, new AbortController().signal)) events.push(event);
    return events;
  };

  await t.test('it tells votes, starts, ends and the end of the job, in this order, and ends', async (t) => {
    const gone = { serverUuid: randomUUID(), name: 'gone' };
    const denied = { ...gone, serverUuid: randomUUID(), name: 'denied', isDenied: true };
    const job = jobOf([...nodes, gone, denied], { quorum: 3 });
    await createPushJob(zone.database, job);
    const events = await followed(job.id);
    t.same(
      events.map(({ number }) => number),
      events.map((_, index) => index + 2),
      'without a gap',
    );
    t.ok(
      events.every(({ atUs }, index) => Number(atUs) > Number(events[index - 1]?.atUs ?? 0)),
      'each is later than the one before',
    );
    t.same(events.map(toldOf).sort(), [
      'job_complete complete',
      'quorum_succeeded',
      'quorum_vote denied failure',
      'quorum_vote gone down',
      ...nodes.map(({ name }) => `quorum_vote ${name} success`),
      'rehab gone',
      ...nodes.map(({ name }) => `run_complete ${name} success`),
      ...nodes.map(({ name }) => `run_start ${name}`),
    ]);
    const places = (text: string) =>
      events.map(toldOf).flatMap((told, place) => (told.startsWith(text) ? [place] : []));
    const quorum = places('quorum_succeeded')[0] ?? -1;
    t.ok(places('quorum_vote web').every((place) => place < quorum));
    t.ok(places('run_start').every((place) => place > quorum));
    for (const { name } of nodes)
      t.ok((places(`run_start ${name}`)[0] ?? -1) < (places(`run_complete ${name}`)[0] ?? -1), name);
    t.equal(places('job_complete')[0], events.length - 1);

    t.same(await followed(job.id, 4), events.slice(3), 'it continues after any number');
    t.same(await followed(job.id, events.length + 1), [], 'nothing follows the last one');
    await zone.database.query('delete from cnapi_push_jobs where id = $1::uuid', [job.id]);
    t.same(await readFeed(zone.database, job.id, 1), [], 'it is deleted with its job');
    t.same(await followed(job.id), []);
  });

  await t.test('a job of no organization has none', async (t) => {
    const job = jobOf(nodes, { organization: undefined });
    await createPushJob(zone.database, job);
    await until(async () => {
      const { rows } = await zone.database.query<{ state: string }>(
        'select state from cnapi_push_jobs where id = $1::uuid',
        [job.id],
      );
      return rows[0]?.state === 'ended';
    }, 'the job to end');
    t.same(await readFeed(zone.database, job.id, 0), []);
  });

  await t.test('many followers of a job, and one that leaves', async (t) => {
    const job = jobOf(nodes, { command: 'sleep 1' });
    await createPushJob(zone.database, job);
    const leaving = new AbortController();
    const left = (async () => {
      for await (const event of followers.feed(job.id, 1, leaving.signal))
        if (event.name === 'quorum_vote') leaving.abort();
    })();
    const all = await Promise.all(Array.from({ length: 20 }, () => followed(job.id)));
    await left;
    t.ok(all[0]?.some(({ name }) => name === 'job_complete'));
    for (const events of all) t.same(events, all[0]);
    t.equal(followers.count, 0);
  });
});

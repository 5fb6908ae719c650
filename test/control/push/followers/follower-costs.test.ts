/** What followers of push jobs cost the database, with rows that the test writes itself. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { PushJobFollowers } from '../../../../lib/control/push/followers/job-followers.ts';
import type { FollowUpdate } from '../../../../lib/control/push/followers/node-follower.ts';
import type { PushJobState } from '../../../../lib/control/push/push-job.ts';
import { createPushJob, type NewPushJob } from '../../../../lib/control/push/push-store.ts';
import { PUSH_PROGRESS_TOPIC } from '../../../../lib/control/push/push-topics.ts';
import { migrations } from '../../../../lib/control/subsystem-list.ts';
import { silentLogger as log } from '../../../../lib/platform/log.ts';
import type { Queryable, StatementOptions, Values } from '../../../../lib/platform/postgres/database.ts';
import { systemRandom as random } from '../../../../lib/platform/random.ts';
import { systemClock, type Timer } from '../../../../lib/platform/time/clock.ts';
import { publishChanges } from '../../../../lib/platform/waits/changes.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { createMemoryBus, MemoryHub } from '../../../support/memory-bus.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import { until } from '../../../support/until.ts';

const NEVER_MS = 1e9;
const NODES = 3;
const STEP_MS = 10;
const MAX_TIMERS = 100_000;

/** Counts the timers, and ends a loop that would set them for ever. */
class CountingClock extends ManualClock {
  set = 0;

  override after(delayMs: number, callback: () => void): Timer {
    this.set += 1;
    if (this.set > MAX_TIMERS) throw new Error(`${this.set} timers`);
    return super.after(delayMs, callback);
  }
}

/**
 * A job of three nodes that no instance carries out, and followers whose statements are counted.
 */
async function setUp(t: Test, { maxFollowers = 100, maxRememberedBytes = 1e9, state = 'voting' as PushJobState } = {}) {
  const { database } = await freshDatabase(t, { migrations });
  const job: NewPushJob = {
    id: randomUUID(),
    organization: 'acme',
    command: 'echo hello',
    options: {},
    maskedOptions: undefined,
    file: undefined,
    nodes: Array.from({ length: NODES }, (_, index) => ({ serverUuid: randomUUID(), name: `web-${index}` })),
    quorum: 1,
    concurrency: undefined,
    maxFailures: undefined,
    votingTimeoutMs: 60_000,
    runTimeoutMs: 60_000,
    abortTimeoutMs: 60_000,
    actor: 'alice',
  };
  await createPushJob(database, job);
  // No agent of these servers is there, so the nodes have ended already.
  await database.query('delete from cnapi_push_nodes where job = $1::uuid', [job.id]);
  await database.query(
    `insert into cnapi_push_nodes (job, server_uuid, name)
       select $1::uuid, n.server_uuid, n.name from unnest($2::uuid[], $3::text[]) as n (server_uuid, name)`,
    [job.id, job.nodes.map(({ serverUuid }) => serverUuid), job.nodes.map(({ name }) => name)],
  );
  const followed = { id: job.id, state, node_count: NODES };
  if (state === 'ended')
    await database.query(`update cnapi_push_jobs set state = 'ended', outcome = 'complete' where id = $1::uuid`, [
      job.id,
    ]);
  const statements: string[] = [];
  /** Statements with this name wait until it is done. */
  const held = { name: '', release: Promise.resolve() };
  const running = new Set<Promise<unknown>>();
  const counting: Queryable = {
    query<Row>(text: string, values?: Values, options?: StatementOptions) {
      statements.push(options?.name ?? text);
      if (options?.name === held.name) return held.release.then(() => database.query<Row>(text, values, options));
      const result = database.query<Row>(text, values, options);
      running.add(result);
      const ended = () => running.delete(result);
      result.then(ended, ended);
      return result;
    },
  };
  const clock = new CountingClock();
  /**
   * The clock stands while statements run: none takes more than a step, however slow it is. A
   * statement that took a minute would make its follower rest for ten.
   */
  const elapse = async (ms: number) => {
    for (let elapsedMs = 0; elapsedMs < ms; elapsedMs += STEP_MS) {
      await clock.advance(STEP_MS);
      while (running.size > 0) {
        await Promise.allSettled(running);
        await clock.advance(0);
      }
    }
  };
  const hub = new MemoryHub();
  const bus = createMemoryBus({ hub, clock: systemClock, random, log });
  await bus.start();
  t.teardown(() => bus.stop());
  const config = { slowPollMs: NEVER_MS, slowPollNoBusMs: NEVER_MS };
  const followers = new PushJobFollowers({
    database: counting,
    bus,
    clock,
    log,
    config,
    maxFollowers,
    maxRememberedBytes,
  });
  followers.start();
  t.teardown(() => followers.stop());

  const leaving = new AbortController();
  t.teardown(() => leaving.abort());
  const follow = (signal = leaving.signal) => {
    const heard: FollowUpdate[] = [];
    const end = (async () => {
      for await (const update of followers.nodes(followed, { since: undefined, signal })) heard.push(update);
    })();
    return { heard, end };
  };
  const setState = (state: string, task: string | null = null) =>
    database.query(
      'update cnapi_push_nodes set state = $2::text, task = $3::uuid, updated_at = cnapi_now() where job = $1::uuid',
      [job.id, state, task],
    );
  const addNode = () =>
    database.query(
      `insert into cnapi_push_nodes (job, server_uuid, name) values ($1::uuid, gen_random_uuid(), 'added')`,
      [job.id],
    );
  const changed = () => publishChanges(bus, PUSH_PROGRESS_TOPIC, [job.id]);
  const counted = (name: string) => statements.filter((one) => one.includes(name)).length;
  /** The bus, batches and followers wait for some milliseconds of their clock. */
  const passed = (isDone: () => boolean, what: string) =>
    until(async () => {
      await elapse(STEP_MS);
      return isDone();
    }, what);
  return {
    passed,
    elapse,
    clock,
    held,
    job,
    followed,
    followers,
    follow,
    statements,
    counted,
    setState,
    addNode,
    changed,
    leaving,
  };
}

const statesOf = (heard: readonly FollowUpdate[]) =>
  heard.flatMap((update) => ('node' in update ? [update.node.state] : []));

t.test('followers beyond the maximum are refused, whatever they follow', async (t) => {
  const { passed, job, followed, followers, follow, leaving } = await setUp(t, { maxFollowers: 2 });
  const one = follow();
  const signal = new AbortController();
  followers.feed(job.id, 1, signal.signal);
  t.equal(followers.count, 2);
  for (const refused of [
    () => followers.nodes(followed, { since: undefined, signal: leaving.signal }),
    () => followers.feed(job.id, 1, leaving.signal),
  ])
    t.throws(refused, { code: 'TooManyWaiters', statusCode: 503 });
  t.equal(followers.refused, 2);
  signal.abort();
  t.equal(followers.count, 1, 'one that never asked for an event has left');
  await passed(() => one.heard.length > NODES, 'the first round');
  leaving.abort();
  await one.end;
  t.equal(followers.count, 0);
});

t.test('a job in which nothing runs is read when its coordinator says that it has changed', async (t) => {
  const { passed, elapse, follow, statements, setState, changed } = await setUp(t);
  const { heard } = follow();
  await passed(() => heard.length > NODES, 'the first round');
  await elapse(60_000);
  const before = statements.length;
  await elapse(60_000);
  t.equal(statements.length, before, 'a minute without statements');
  await setState('ready');
  changed();
  await passed(() => statesOf(heard).includes('ready'), 'the change');
  t.same(statesOf(heard), [...Array(NODES).fill('new'), ...Array(NODES).fill('ready')]);
});

t.test('followers that are equally far share their reads', async (t) => {
  const { passed, elapse, follow, counted, setState, changed } = await setUp(t);
  const all = Array.from({ length: 50 }, () => follow());
  const haveHeard = (state: string) =>
    passed(() => all.every(({ heard }) => statesOf(heard).filter((one) => one === state).length === NODES), state);
  await haveHeard('new');
  await elapse(1_000);
  const before = counted('read changed push nodes');
  await setState('ready');
  changed();
  await haveHeard('ready');
  const reads = counted('read changed push nodes') - before;
  t.ok(reads <= 5, `${reads} reads for 50 followers`);
});

t.test('output is polled while commands run, and less often while there is none', async (t) => {
  const { passed, elapse, follow, counted, setState, changed } = await setUp(t);
  const { heard } = follow();
  await passed(() => statesOf(heard).length === NODES, 'the first round');
  await setState('running', randomUUID());
  changed();
  await passed(() => statesOf(heard).length === 2 * NODES, 'the starts');
  const roundsIn = async (ms: number) => {
    const before = counted('read changed push nodes');
    await elapse(ms);
    return counted('read changed push nodes') - before;
  };
  const first = await roundsIn(2_000);
  await elapse(10_000);
  const later = await roundsIn(20_000);
  t.ok(later >= 10 && later <= 40, `${later} rounds in 20 s`);
  t.ok(first > later / 10, `${first} rounds in the first 2 s`);
});

t.test('while the position of the job cannot be read, a follower asks now and then', async (t) => {
  const { passed, elapse, clock, held, follow, setState, changed } = await setUp(t);
  const { heard } = follow();
  await setState('running', randomUUID());
  changed();
  await passed(() => statesOf(heard).length >= NODES, 'the starts');
  const release = Promise.withResolvers<void>();
  Object.assign(held, { name: 'read positions of push jobs', release: release.promise });
  await elapse(1_000);
  const before = clock.set;
  await elapse(10_000);
  t.ok(clock.set - before <= 200, `${clock.set - before} timers in 10 s`);
  held.name = '';
  release.resolve();
  await setState('succeeded', randomUUID());
  await passed(() => statesOf(heard).includes('succeeded'), 'the ends');
});

t.test('a job that nobody follows is forgotten, and its nodes are remembered once for all who do', async (t) => {
  const { passed, followers, follow } = await setUp(t);
  const leaving = Array.from({ length: 11 }, () => new AbortController());
  const signalOf = (index: number) => leaving[index]?.signal as AbortSignal;
  const all = [follow(signalOf(0))];
  const ofOne = followers.rememberedBytes;
  for (let index = 1; index < leaving.length; index++) all.push(follow(signalOf(index)));
  await passed(() => all.every(({ heard }) => statesOf(heard).length === NODES), 'the first rounds');
  t.ok(ofOne > 0 && followers.rememberedBytes < 2 * ofOne, `${ofOne} and ${followers.rememberedBytes} bytes`);
  for (const one of leaving) one.abort();
  await Promise.all(all.map(({ end }) => end));
  t.equal(followers.rememberedBytes, 0);
});

t.test('followers that would remember too many nodes are refused, until others have left', async (t) => {
  const { followers, follow, followed, leaving } = await setUp(t, { maxRememberedBytes: 1_000 });
  const first = new AbortController();
  follow(first.signal);
  const other = { ...followed, id: randomUUID() };
  const signal = leaving.signal;
  t.throws(() => followers.nodes(other, { since: undefined, signal }), {
    code: 'TooManyFollowedNodes',
    statusCode: 503,
  });
  t.equal(followers.refused, 1);
  t.equal(followers.count, 1, 'the one that was refused holds no wait');
  t.doesNotThrow(() => followers.nodes(followed, { since: undefined, signal }), 'one more of the same job has room');
  first.abort();
  t.throws(() => followers.nodes(other, { since: undefined, signal }), 'the second one still follows');
});

t.test('nodes that are added to a job count, and a follower that would remember too many ends', async (t) => {
  const { passed, followers, follow, addNode, changed } = await setUp(t, { maxRememberedBytes: 1_000 });
  const { heard, end } = follow();
  const refused = t.rejects(end, { code: 'TooManyFollowedNodes' });
  await passed(() => statesOf(heard).length === NODES, 'the first round');
  const before = followers.rememberedBytes;
  for (let added = 0; added < NODES; added += 1) await addNode();
  changed();
  await passed(() => followers.count === 0, 'the follower to end');
  await refused;
  t.ok(before > 0 && followers.rememberedBytes === 0);
});

t.test('the nodes of a job that had ended are sent once, and not remembered', async (t) => {
  const { passed, followers, follow, setState } = await setUp(t, { state: 'ended', maxRememberedBytes: 0 });
  await setState('succeeded', randomUUID());
  const { heard, end } = follow();
  t.equal(followers.rememberedBytes, 0);
  await passed(() => heard.some((update) => 'job' in update), 'the end');
  await end;
  t.same(statesOf(heard), Array(NODES).fill('succeeded'));
});

/** The times that a job's coordinator counts, over a job's row that the test makes up. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { Coordinator } from '../../../../lib/control/push/coordinator/coordinator.ts';
import { TASK_ENDS_TOPIC } from '../../../../lib/control/tasks/task-topics.ts';
import { DatabaseBusyError } from '../../../../lib/platform/errors.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { systemRandom as random } from '../../../../lib/platform/random.ts';
import { publishChanges } from '../../../../lib/platform/waits/changes.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { createMemoryBus, MemoryHub } from '../../../support/memory-bus.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';
import { until } from '../../../support/until.ts';

const VOTING = {
  state: 'voting',
  ending: null,
  is_soft: false,
  quorum: 1,
  abort_requested: null,
  concurrency: null,
  start_rate: null as number | null,
  max_failures: null,
  voting_timeout_ms: 4_000,
  run_timeout_ms: 10_000,
  abort_timeout_ms: 1_000,
  start_bucket_full_in_ms: 0,
  age_ticks: '0',
  state_ticks: '0',
  started: 0,
  to_cancel: 0,
  to_abort: 0,
  to_release: 0,
  more: false,
  in_rehab: 0,
  new_events: 0,
  states: ['new'],
  counts: [1],
};

/** A coordinator at work on one job; `row` is what each of its rounds reads. */
function atWork(
  t: Test,
  row: Partial<typeof VOTING>,
  { hasTicket = false, ticketStatus = 'active', tasks = [] as string[] } = {},
) {
  const clock = new ManualClock();
  const records: Record<string, unknown>[] = [];
  const log = recordingLogger(records);
  const job = { ...VOTING, ...row };
  const asked: { name: string; values: readonly unknown[] }[] = [];
  /** How long a round takes, and why it fails. */
  const round: { tookMs: number; error: Error | undefined } = { tookMs: 0, error: undefined };
  const roundsAt: number[] = [];
  const ticket = { ticket: randomUUID(), server_uuid: randomUUID(), scope: 'test', id: 'one' };
  const ticketRow = { ...ticket, expires_in: 30, timeout_ms: 60_000, actor: null };
  const renewed: string[] = [];
  const ticketWaits: AbortSignal[] = [];
  const database = {
    query: async (text: string, values: readonly unknown[] = []) => {
      const name = /cnapi_\w+/.exec(text)?.[0] ?? '';
      asked.push({ name, values });
      if (name === 'cnapi_push_tickets') return { rows: hasTicket ? [ticketRow] : [], rowCount: 0 };
      if (name === 'cnapi_advance_push_job') {
        roundsAt.push(clock.now());
        if (round.tookMs > 0) await clock.sleep(round.tookMs);
        if (round.error !== undefined) throw round.error;
      }
      const answers: Record<string, unknown[]> = {
        cnapi_advance_push_job: [job],
        cnapi_close_push_voting: [{ held: true }],
        cnapi_push_nodes: tasks.map((task) => ({ task })),
      };
      const rows = answers[name] ?? [];
      return { rows, rowCount: 0 };
    },
  } as unknown as Queryable;
  const bus = createMemoryBus({ hub: new MemoryHub(), random, clock, log, beatMs: 50 });
  const coordinator = new Coordinator({
    database,
    bus,
    clock,
    random,
    log,
    config: { slowPollMs: 5_000 },
    waitlist: {
      async renew(uuid: string) {
        renewed.push(uuid);
        return { status: ticketStatus };
      },
      wait(_uuid: string, { signal }: { signal: AbortSignal }) {
        ticketWaits.push(signal);
        return new Promise(() => {});
      },
    } as never,
    tasks: { notifyAuthorities: () => {} },
    sendOrders: () => {},
  });
  coordinator.start();
  t.teardown(async () => {
    coordinator.stop();
    await bus.stop();
  });
  let connected: Promise<void> | undefined;
  const over = new AbortController();
  t.teardown(() => over.abort());
  const duty = { id: randomUUID(), kind: 'push-job', run: randomUUID(), generation: 1, failures: 0 };
  coordinator.carryOut(duty, over.signal).catch(() => {});
  const logged = () => records.map(({ msg }) => msg);
  return {
    clock,
    job,
    logged,
    round,
    roundsAt,
    renewed,
    ticket,
    ticketWaits,
    asked: (name: string) => asked.filter((one) => one.name === name),
    /** Whether the end of this task is news of the job: the next round begins at once. */
    async isNews(task: string) {
      connected ??= bus.start();
      await connected;
      const before = roundsAt.length;
      while (roundsAt.length === before) await clock.advance(50);
      // News gathers for a while after a round.
      await clock.advance(100);
      const rounds = roundsAt.length;
      publishChanges(bus, TASK_ENDS_TOPIC, [task]);
      await clock.advance(10);
      return roundsAt.length > rounds;
    },
  };
}

t.test('the votes have all their time, although the counter of deadlines catches up as the job is made', async (t) => {
  const { clock, asked } = atWork(t, { age_ticks: '5' });
  await clock.advance(0);
  await clock.advance(3_900);
  t.equal(asked('cnapi_abort_push_job').length, 0, 'agents may still vote');
  await clock.advance(200);
  t.ok(asked('cnapi_abort_push_job').length > 0, 'now they may not');
});

t.test('nodes that start later have whole milliseconds left, which the database takes', async (t) => {
  const { clock, job, asked } = atWork(t, { state: 'running', states: ['running'] });
  await clock.advance(0);
  await clock.advance(333.3);
  Object.assign(job, { states: ['running', 'ready'], counts: [1, 1] });
  await clock.advance(1_000.2);
  const runMs = asked('cnapi_start_push_nodes')[0]?.values[6];
  t.ok(Number.isInteger(runMs), `${runMs} ms`);
});

t.test('a hard abort after a soft one has an abort timeout of its own', async (t) => {
  const soft = { state: 'aborting', is_soft: true, abort_timeout_ms: 4_000 };
  const { clock, job, asked } = atWork(t, { ...soft, states: ['running'], started: 1 });
  await clock.advance(0);
  for (let second = 0; second < 6; second += 1) await clock.advance(1_000);
  Object.assign(job, { is_soft: false });
  for (let second = 0; second < 3; second += 1) await clock.advance(1_000);
  t.equal(asked('cnapi_end_push_job').length, 0, 'its commands have just been told to end');
  for (let second = 0; second < 3; second += 1) await clock.advance(1_000);
  t.ok(asked('cnapi_end_push_job').length > 0);
});

t.test('a step that changes nothing, because a row is locked, is repeated at a pace', async (t) => {
  const { clock, asked } = atWork(t, { state: 'aborting', states: ['running'], started: 1, to_cancel: 1 });
  await clock.advance(0);
  for (let times = 0; times < 100; times += 1) await clock.advance(10);
  const times = asked('cnapi_abort_push_job').length;
  t.ok(times >= 2 && times <= 6, `${times} times in a second`);
});

t.test('a start that was refused is not charged to the start rate', async (t) => {
  const running = { state: 'running', states: ['ready'], run_timeout_ms: 600_000, start_rate: 0.01 };
  const { clock, asked } = atWork(t, running);
  await clock.advance(0);
  for (let second = 0; second < 5; second += 1) await clock.advance(1_000);
  t.ok(asked('cnapi_start_push_nodes').length > 2, 'the first may be refused because a caller changed the job');
});

t.test('between rounds there is as much time for votes as a round takes', async (t) => {
  const { clock, job, round, roundsAt } = atWork(t, { more: true });
  round.tookMs = 400;
  const gaps = () => roundsAt.slice(1).map((at, index) => at - (roundsAt[index] ?? 0) - 400);
  for (let second = 0; second < 4; second += 1) await clock.advance(1_000);
  t.ok(gaps().length > 1 && Math.min(...gaps().slice(1)) >= 400, `gaps of ${gaps().join(', ')} ms`);
  Object.assign(job, { states: ['running'] });
  await clock.advance(2_000);
  roundsAt.length = 0;
  for (let second = 0; second < 4; second += 1) await clock.advance(1_000);
  t.ok(gaps().length > 1 && Math.max(...gaps()) < 400, 'all have voted');
});

t.test('a holder that begins starts the next node when the start rate allows it', async (t) => {
  const running = { state: 'running', states: ['ready'], run_timeout_ms: 600_000, start_rate: 0.1 };
  const { clock, asked } = atWork(t, { ...running, start_bucket_full_in_ms: 4_000 });
  await clock.advance(0);
  await clock.advance(3_900);
  t.equal(asked('cnapi_start_push_nodes').length, 0);
  await clock.advance(200);
  t.ok(asked('cnapi_start_push_nodes').length > 0);
});

t.test('the ticket of a job is renewed although the rows of the job are locked', async (t) => {
  const { round, renewed, ticket } = atWork(t, { state: 'running' }, { hasTicket: true });
  round.error = new DatabaseBusyError('locked');
  await until(() => renewed.length > 0, 'a renewal');
  t.equal(renewed[0], ticket.ticket);
});

t.test('work that meets a busy database leaves no wait for its ticket behind', async (t) => {
  const { round, ticketWaits } = atWork(t, { state: 'waiting' }, { hasTicket: true, ticketStatus: 'queued' });
  round.error = new DatabaseBusyError('locked');
  await until(() => ticketWaits.length > 0 && ticketWaits.every(({ aborted }) => aborted), 'the wait to end');
});

t.test('nodes start, although those that have not voted are locked', async (t) => {
  const late = { state: 'running', states: ['new', 'ready'], counts: [1, 1], age_ticks: '60' };
  const { clock, asked } = atWork(t, late);
  await clock.advance(0);
  for (let times = 0; times < 10; times += 1) await clock.advance(10);
  t.ok(asked('cnapi_close_push_voting').length > 0);
  t.ok(asked('cnapi_start_push_nodes').length > 0);
});

t.test('a transition is logged once it has happened, and not when the start was refused', async (t) => {
  const { clock, job, asked, logged } = atWork(t, { states: ['ready'] });
  await clock.advance(0);
  await clock.advance(100);
  t.ok(asked('cnapi_start_push_nodes').length > 0);
  t.strictSame(logged(), [], 'a caller has asked for an abort meanwhile');
  Object.assign(job, { state: 'running' });
  for (let rounds = 0; rounds < 3; rounds += 1) await clock.advance(2_000);
  t.strictSame(logged(), ['push job: voting -> running']);
});

t.test('an abort is logged once the job is aborting, and says for which cause it is', async (t) => {
  const { clock, job, asked, logged } = atWork(t, { states: ['unavailable'] });
  await clock.advance(0);
  await clock.advance(100);
  const [abort] = asked('cnapi_abort_push_job');
  t.equal(abort?.values[3], 'no-quorum');
  t.strictSame(logged(), [], 'a caller has changed the job meanwhile');
  Object.assign(job, { state: 'aborting', ending: 'quorum_failed' });
  await clock.advance(2_000);
  t.strictSame(logged(), ['push job: aborting']);
});

t.test('a task is remembered until it ends, and not until its job ends', async (t) => {
  const tasks = Array.from({ length: 2 }, () => randomUUID());
  const [first = '', second = ''] = tasks;
  const { isNews } = atWork(t, { state: 'running', states: ['running'], counts: [2], started: 2 }, { tasks });
  t.ok(await isNews(first));
  t.notOk(await isNews(first), 'it is known to have ended');
  t.ok(await isNews(second));
});

t.test('tasks whose ends were not announced are forgotten when there are many of them', async (t) => {
  const tasks = Array.from({ length: 1_100 }, () => randomUUID());
  const [first = '', last = ''] = [tasks[0], tasks.at(-1)];
  const { job, asked, isNews } = atWork(
    t,
    { state: 'running', states: ['running'], counts: [1_100], started: 1_100 },
    { tasks },
  );
  t.ok(await isNews(first));
  t.equal(asked('cnapi_push_nodes').length, 1, 'they are read at the start');
  Object.assign(job, { states: ['succeeded', 'running'], counts: [1_099, 1], started: 1 });
  const [ended = ''] = tasks.splice(0, tasks.length - 1).slice(5);
  t.ok(await isNews(last));
  t.notOk(await isNews(ended));
  t.equal(asked('cnapi_push_nodes').length, 2, 'they are read again once');
});

import t from 'tap';
import { type ClaimedAttempt, MAX_READ_TASKS } from '../../../../lib/control/tasks/dispatch/claim-store.ts';
import { SessionDispatch } from '../../../../lib/control/tasks/dispatch/session-dispatch.ts';
import { type TaskError, taskEnds } from '../../../../lib/control/tasks/store/task.ts';
import { DatabaseBusyError } from '../../../../lib/platform/errors.ts';
import type { Database } from '../../../../lib/platform/postgres/database.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';

const DEADLINE_MS = 4_000;
const MIB = 1024 * 1024;

/**
 * A dispatch whose database moves `most` bytes of params in a statement's time, and gives at most
 * `perClaim` tasks.
 */
function setUp(most: number, sizes: Record<string, number>, perClaim = Number.POSITIVE_INFINITY) {
  const clock = new ManualClock();
  const sent: string[] = [];
  const failed = new Map<string, TaskError>();
  const reads: string[][] = [];
  const logged: Record<string, unknown>[] = [];
  const claimed = new Set<string>();
  const attempts = Object.entries(sizes).map(([id, paramsBytes]) => ({
    id,
    serverUuid: `server of ${id}`,
    attempt: 1,
    paramsBytes,
  }));
  const read = async (ids: string[]) => {
    reads.push(ids);
    const size = ids.reduce((sum, id) => sum + (sizes[id] ?? 0), 0);
    await clock.sleep(Math.max(1, DEADLINE_MS * Math.min(1, size / most)));
    if (size > most) throw new DatabaseBusyError('unanswered');
    return ids.map((id) => ({
      id,
      serverUuid: `server of ${id}`,
      attempt: 1,
      epoch: 1,
      name: 'nop',
      timeoutMs: 1,
      requestId: null,
    }));
  };
  const query = async (text: string, values: unknown[]) => {
    if (text.includes('as given (id, attempt, place)')) return { rows: await read(values[0] as string[]) };
    if (text.includes('as busy')) return { rows: attempts.map(({ serverUuid }) => ({ server_uuid: serverUuid })) };
    if (text.includes('cnapi_claim_for_sessions')) {
      const given = attempts.filter(({ id }) => !claimed.has(id)).slice(0, perClaim);
      for (const { id } of given) claimed.add(id);
      return { rows: given.map((one) => ({ ...one, what: 'send' })) };
    }
    const isResend = text.includes('due.bytes_before');
    return {
      rows: isResend ? attempts.filter(({ id }) => claimed.has(id) && !sent.includes(id) && !failed.has(id)) : [],
    };
  };
  const session = (serverUuid: string) => ({
    serverUuid,
    epoch: 1,
    journalId: '',
    capabilities: new Set(['task:nop']),
    isBackedUp: false,
    unsentBytes: 0,
    send: ({ id }: ClaimedAttempt) => sent.push(id) > 0,
  });
  const sessions = { run: () => '', get: session, all: () => [] };
  const dispatch = new SessionDispatch({
    database: { query } as unknown as Database,
    sessions: sessions as never,
    clock,
    log: recordingLogger(logged),
    config: { taskResendMs: 5_000, taskOverdueMs: 60_000 },
    fail: ({ id }, error) => failed.set(id, error),
  });
  return { claimed, clock, dispatch, failed, logged, reads, sent };
}

/** Twice as many tasks as one statement reads. */
const twiceAsMany = (size: number) =>
  Object.fromEntries(Array.from({ length: 2 * MAX_READ_TASKS }, (_, n) => [`task ${n}`, size]));

t.test('claimed tasks that do not pass the network together are read in smaller batches', async (t) => {
  const { clock, dispatch, logged, reads, sent } = setUp(1.5 * MIB, { a: MIB, b: MIB, c: MIB, d: MIB });
  dispatch.hint('server of a');
  for (let times = 0; times < 10; times += 1) await clock.advance(DEADLINE_MS);
  t.same(sent, ['a', 'b', 'c', 'd']);
  t.same(reads, [['a', 'b', 'c', 'd'], ['a', 'b'], ['a'], ['b'], ['c'], ['d']]);
  t.same(logged, []);
});

t.test('a task that does not pass the network stops no other, and is not read twice at once', async (t) => {
  const { clock, dispatch, failed, reads, sent } = setUp(MIB, { large: 2 * MIB, a: 100, b: 100 });
  dispatch.hint('server of a');
  for (let times = 0; times < 4; times += 1) await clock.advance(DEADLINE_MS);
  t.same(sent.toSorted(), ['a', 'b']);
  const before = reads.length;
  for (let second = 0; second < 100; second += 5) {
    const polling = dispatch.poll();
    await clock.advance(5_000);
    await polling;
  }
  const tries = reads.slice(before);
  t.ok(tries.length >= 2 && tries.length <= 7, `${tries.length} more reads in 100 s`);
  t.ok(
    tries.every((ids) => ids.join() === 'large'),
    'only the large one',
  );
  t.same([...failed], [['large', taskEnds.notRead]], 'it ends and takes no more room of its server');
});

t.test('a task that may be with its agent and does not pass the network again ends as unknown', async (t) => {
  const { claimed, clock, dispatch, failed, reads } = setUp(MIB, { large: 2 * MIB });
  claimed.add('large');
  for (let second = 0; second < 200; second += 5) {
    const polling = dispatch.poll();
    await clock.advance(5_000);
    await polling;
  }
  t.same([...failed], [['large', taskEnds.notReadAgain]]);
  // A poll that had found it before its end may cause one more read.
  t.ok(reads.length >= 5 && reads.length <= 6, `${reads.length} reads`);
});

t.test('a claim that waits for reads begins when they are done', async (t) => {
  const { clock, dispatch, sent } = setUp(MIB, twiceAsMany(100), MAX_READ_TASKS);
  dispatch.hint('server of a');
  await clock.advance(0);
  dispatch.hint('server of a');
  await clock.advance(DEADLINE_MS);
  t.equal(sent.length, 2 * MAX_READ_TASKS);
});

t.test('a claim that waits for reads begins when they are set aside', async (t) => {
  const { claimed, clock, dispatch, reads } = setUp(MIB, twiceAsMany(2 * MIB), MAX_READ_TASKS);
  dispatch.hint('server of task 0');
  await clock.advance(0);
  dispatch.hint('server of task 0');
  while (reads.at(-1)?.length !== 1) await clock.advance(DEADLINE_MS);
  t.equal(claimed.size, MAX_READ_TASKS);
  await clock.advance(DEADLINE_MS);
  t.equal(claimed.size, 2 * MAX_READ_TASKS);
});

t.test('a session that begins has no pause left over from the claims of the one before', async (t) => {
  const clock = new ManualClock();
  const claimedAt: number[] = [];
  let isConnected = true;
  const query = async (text: string) => {
    if (!text.includes('cnapi_claim_for_sessions')) return { rows: [] };
    claimedAt.push(clock.now());
    return { rows: [{ what: 'again', serverUuid: 'a' }] };
  };
  const session = { serverUuid: 'a', epoch: 1, journalId: '', capabilities: new Set(), isBackedUp: false };
  const dispatch = new SessionDispatch({
    database: { query } as unknown as Database,
    sessions: { run: () => '', get: () => (isConnected ? session : undefined) } as never,
    clock,
    log: recordingLogger([]),
    config: { taskResendMs: 5_000, taskOverdueMs: 60_000 },
    fail: () => undefined,
  });
  dispatch.hint('a');
  await clock.advance(0);
  await clock.advance(1_000);
  isConnected = false;
  await clock.advance(10_000);
  isConnected = true;
  const from = clock.now();
  claimedAt.length = 0;
  dispatch.hint('a');
  await clock.advance(0);
  await clock.advance(200);
  t.same(
    claimedAt.map((at) => at - from),
    [0, 50, 150],
  );
  await dispatch.stop();
});

t.test('a server that waits for its claim keeps its time to start only while its session is held', async (t) => {
  const clock = new ManualClock();
  const connected = new Set(['stays', 'leaves']);
  const dispatch = new SessionDispatch({
    database: { query: async () => ({ rows: [] }) } as unknown as Database,
    // Too much is unread, so no claim begins.
    sessions: { isFull: true, get: (uuid: string) => (connected.has(uuid) ? {} : undefined) } as never,
    clock,
    log: recordingLogger([]),
    config: { taskResendMs: 5_000, taskOverdueMs: 60_000 },
    fail: () => undefined,
  });
  dispatch.hintAll([...connected]);
  t.same(dispatch.endClaimPeriod(), [], 'not before a whole period');
  t.same(dispatch.endClaimPeriod(), ['stays', 'leaves']);
  connected.delete('leaves');
  t.same(dispatch.endClaimPeriod(), ['stays']);
  await dispatch.stop();
});

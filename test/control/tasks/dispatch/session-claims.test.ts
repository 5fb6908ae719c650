/**
 * What an instance claims, sends and cancels for its sessions, on a database that answers as the
 * test says.
 */
import t from 'tap';
import type { ClaimedAttempt, TaskToSend } from '../../../../lib/control/tasks/dispatch/claim-store.ts';
import { SessionDispatch } from '../../../../lib/control/tasks/dispatch/session-dispatch.ts';
import type { TaskSession } from '../../../../lib/control/tasks/sessions.ts';
import { type TaskError, taskEnds } from '../../../../lib/control/tasks/store/task.ts';
import { DatabaseBusyError } from '../../../../lib/platform/errors.ts';
import type { Database } from '../../../../lib/platform/postgres/database.ts';
import { MAX_TASK_TIMEOUT_MS } from '../../../../lib/protocol/limits.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';

type ClaimRow = Partial<ClaimedAttempt> & { what: string };
type Sent = { serverUuid: string; type: string; id: string; [field: string]: unknown };

const attempt = (id: string, serverUuid = 'a'): ClaimedAttempt => ({
  ...{ id, serverUuid, attempt: 1, epoch: 1, paramsBytes: 2 },
});

function setUp(...serverUuids: string[]) {
  const clock = new ManualClock();
  const sent: Sent[] = [];
  const failed = new Map<string, TaskError>();
  const logged: Record<string, unknown>[] = [];
  const world = {
    /** The servers of each claim. */
    claims: [] as string[][],
    /** The answers to the next claims. */
    claimed: [] as ClaimRow[][],
    beforeClaimed: Promise.resolve(),
    /** Agents have too much unread. */
    isFull: false,
    busy: [] as string[],
    overdue: [] as { id: string; serverUuid: string; attempt: number }[],
    resends: [] as ClaimedAttempt[][],
    resendAsked: [] as string[][],
    backedUp: [] as string[][],
    orders: {} as Record<string, Partial<TaskToSend>>,
    refusals: [] as Error[],
  };
  const query = async (text: string, values: unknown[]): Promise<{ rows: unknown[] }> => {
    if (text.includes('cnapi_claim_for_sessions')) {
      world.claims.push(values[1] as string[]);
      await world.beforeClaimed;
      return { rows: world.claimed.shift() ?? [] };
    }
    if (text.includes('as given (id, attempt, place)')) {
      const refusal = world.refusals.shift();
      if (refusal !== undefined) throw refusal;
      const base = { serverUuid: 'a', attempt: 1, epoch: 1, name: 'nop', params: {}, timeoutMs: 1, requestId: null };
      return { rows: (values[0] as string[]).map((id) => ({ id, ...base, ...world.orders[id] })) };
    }
    if (text.includes('as busy')) return { rows: world.busy.map((server_uuid) => ({ server_uuid })) };
    if (text.includes('cnapi_record_full_servers')) world.backedUp.push(values[0] as string[]);
    else if (text.includes('cancel_sent_at')) return { rows: world.overdue };
    else if (text.includes('due.bytes_before')) {
      world.resendAsked.push(values[0] as string[]);
      return { rows: world.resends.shift() ?? [] };
    }
    return { rows: [] };
  };
  const sessions = new Map<string, { -readonly [Field in keyof TaskSession]: TaskSession[Field] }>();
  for (const serverUuid of serverUuids)
    sessions.set(serverUuid, {
      ...{
        serverUuid,
        epoch: 1,
        journalId: '',
        capabilities: new Set(['task:nop']),
        isBackedUp: false,
        unsentBytes: 0,
      },
      send: (frame) => frame.type === 'inventory_settled' || sent.push({ serverUuid, ...frame }) > 0,
    });
  const dispatch = new SessionDispatch({
    database: { query } as unknown as Database,
    sessions: {
      run: () => 'run',
      get isFull() {
        return world.isFull;
      },
      get: (serverUuid) => sessions.get(serverUuid),
    },
    clock,
    log: recordingLogger(logged),
    config: { taskResendMs: 5_000, taskOverdueMs: 60_000 },
    fail: ({ id }, error) => failed.set(id, error),
  });
  const session = (serverUuid: string) => {
    const found = sessions.get(serverUuid);
    if (found === undefined) throw new Error(`no session of ${serverUuid}`);
    return found;
  };
  const hint = async (serverUuid: string) => {
    dispatch.hint(serverUuid);
    await clock.advance(0);
  };
  const poll = async () => {
    const polling = dispatch.poll();
    await clock.advance(10);
    await polling;
    // Claims for several servers gather for a moment.
    await clock.advance(10);
  };
  return { clock, dispatch, failed, hint, logged, poll, sent, session, sessions, world };
}

t.test('a claimed task is sent to its agent as it was requested', async (t) => {
  const { dispatch, hint, sent, world } = setUp('a');
  world.claimed = [
    [
      { what: 'send', ...attempt('x') },
      { what: 'send', ...attempt('y') },
    ],
  ];
  world.orders.y = { params: { z: 1 }, timeoutMs: MAX_TASK_TIMEOUT_MS + 1, requestId: 'r' };
  await hint('a');
  const frame = { serverUuid: 'a', type: 'task', attempt: 1, epoch: 1, name: 'nop' };
  t.same(sent, [
    { ...frame, id: 'x', params: {}, timeoutMs: 1 },
    { ...frame, id: 'y', params: { z: 1 }, timeoutMs: MAX_TASK_TIMEOUT_MS, requestId: 'r' },
  ]);
  t.same(dispatch.stats(), { wanted: 0, sent: 2, resent: 0 });
});

t.test('nothing is claimed for a server without a session', async (t) => {
  const { clock, hint, sessions, world } = setUp('a');
  await hint('b');
  t.same(world.claims, []);
  world.beforeClaimed = clock.sleep(1_000);
  await hint('a');
  await hint('a');
  sessions.clear();
  await clock.advance(1_000);
  t.same(world.claims, [['a']], 'the session has ended before the second claim');
});

t.test('hints for many servers that arrive in several messages share one claim', async (t) => {
  const { clock, dispatch, world } = setUp('a', 'b', 'c', 'd');
  dispatch.hintAll(['a', 'b', 'elsewhere']);
  dispatch.hintAll(['c', 'd']);
  await clock.advance(5);
  t.same(world.claims, [['a', 'b', 'c', 'd']]);
});

t.test('a task is not sent to another session than the one that it was claimed for', async (t) => {
  const { dispatch, failed, hint, sent, session, world } = setUp('a');
  world.claimed = [[{ what: 'send', ...attempt('x') }]];
  session('a').epoch = 2;
  await hint('a');
  t.same([sent, [...failed], dispatch.stats().sent], [[], [], 0]);
});

t.test('while agents have too much unread, no task is claimed or read, and cancels go on', async (t) => {
  const { clock, hint, poll, sent, world } = setUp('a', 'b');
  world.claimed = [
    [
      { what: 'send', ...attempt('x') },
      { what: 'cancel', ...attempt('y') },
    ],
  ];
  world.beforeClaimed = clock.sleep(1_000);
  await hint('a');
  world.isFull = true;
  await clock.advance(1_000);
  await hint('b');
  world.busy = ['a'];
  world.overdue = [{ id: 'z', serverUuid: 'a', attempt: 1 }];
  await poll();
  await clock.advance(10_000);
  t.same(world.claims, [['a']]);
  t.same(
    sent.map(({ type, id }) => `${type} ${id}`),
    ['task_cancel y', 'task_cancel z'],
  );
  world.isFull = false;
  await clock.advance(50);
  t.same(sent.at(-1), {
    serverUuid: 'a',
    type: 'task',
    id: 'x',
    attempt: 1,
    epoch: 1,
    name: 'nop',
    params: {},
    timeoutMs: 1,
  });
  t.same(world.claims.slice(1).flat().toSorted(), ['a', 'b']);
});

t.test('a task that the agent does not know ends', async (t) => {
  const { dispatch, failed, hint, sent, world } = setUp('a');
  world.claimed = [[{ what: 'send', ...attempt('x') }]];
  world.orders.x = { name: 'other' };
  await hint('a');
  t.same([...failed], [['x', taskEnds.unknownTask]]);
  t.same([sent, dispatch.stats().sent], [[], 0]);
});

t.test('a claim returns cancels to send, also of a server whose session has ended since', async (t) => {
  const { clock, hint, sent, sessions, world } = setUp('a', 'b');
  world.beforeClaimed = clock.sleep(1_000);
  world.claimed = [[{ what: 'cancel', ...attempt('x') }], [{ what: 'cancel', ...attempt('y', 'b') }]];
  await hint('a');
  await hint('b');
  sessions.delete('b');
  await clock.advance(1_000);
  t.same(sent, [{ serverUuid: 'a', type: 'task_cancel', id: 'x', attempt: 1 }]);
});

t.test('a server at its limit is claimed for again once a report of its agent is stored', async (t) => {
  const { clock, dispatch, hint, world } = setUp('a', 'b');
  world.claimed = [[{ what: 'full', serverUuid: 'a' }]];
  await hint('a');
  dispatch.onStored(['b']);
  await clock.advance(10_000);
  t.same(world.claims, [['a']], 'neither another server nor time makes room');
  dispatch.onStored(['a', 'b']);
  await clock.advance(0);
  t.same(world.claims, [['a'], ['a']]);
  dispatch.onStored(['a']);
  await clock.advance(0);
  t.equal(world.claims.length, 2, 'it is not at its limit any more');
});

t.test('a report that is stored during a claim counts although the claim does not know it', async (t) => {
  const { clock, dispatch, hint, world } = setUp('a');
  world.beforeClaimed = clock.sleep(1_000);
  world.claimed = [[{ what: 'full', serverUuid: 'a' }]];
  await hint('a');
  dispatch.onStored(['a']);
  await clock.advance(1_000);
  t.same(world.claims, [['a'], ['a']]);
  await clock.advance(10_000);
  t.equal(world.claims.length, 2, 'a report counts for the claims during which it was stored');
});

t.test(
  'a server with a locked row is claimed for again after a pause, longer each time unless it got something',
  async (t) => {
    const { clock, hint, world } = setUp('a');
    const locked: ClaimRow = { what: 'again', serverUuid: 'a' };
    world.claimed = [[locked], [locked], [locked, { what: 'send', ...attempt('x') }]];
    await hint('a');
    await clock.advance(50);
    t.equal(world.claims.length, 2);
    await clock.advance(99);
    t.equal(world.claims.length, 2, 'the second pause is twice as long');
    await clock.advance(1);
    t.equal(world.claims.length, 3);
    await clock.advance(50);
    t.equal(world.claims.length, 4, 'the pause is short again');
    await clock.advance(10_000);
    t.equal(world.claims.length, 4);
  },
);

t.test('a stop ends the pauses', async (t) => {
  const { clock, dispatch, hint, world } = setUp('a');
  world.claimed = [[{ what: 'again', serverUuid: 'a' }]];
  await hint('a');
  await dispatch.stop();
  t.equal(clock.timers, 0);
  await hint('a');
  t.equal(world.claims.length, 1);
});

t.test('nothing is claimed over a link that is backed up until it has room', async (t) => {
  const { clock, hint, session, world } = setUp('a', 'b');
  session('a').isBackedUp = true;
  await hint('a');
  await hint('b');
  await clock.advance(200);
  t.same(world.claims, [['b']]);
  session('a').isBackedUp = false;
  await clock.advance(50);
  t.same(world.claims, [['b'], ['a']]);
});

t.test('a poll claims for each busy server and cancels overdue tasks', async (t) => {
  const { poll, sent, world } = setUp('a', 'b');
  world.busy = ['a', 'c'];
  world.overdue = [
    { id: 'x', serverUuid: 'a', attempt: 2 },
    { id: 'y', serverUuid: 'c', attempt: 1 },
  ];
  await poll();
  t.same(world.claims, [['a']]);
  t.same(sent, [{ serverUuid: 'a', type: 'task_cancel', id: 'x', attempt: 2 }]);
});

t.test('a poll sends again what was not accepted, except over a link that is backed up', async (t) => {
  const { dispatch, poll, sent, session, world } = setUp('a', 'b');
  world.busy = ['a', 'b'];
  session('b').isBackedUp = true;
  world.resends = [[attempt('x')], [attempt('y')]];
  await poll();
  t.same(world.resendAsked, [['a'], ['a'], ['a']], 'until nothing is left');
  matchLists(t, sent, [
    { type: 'task', id: 'x' },
    { type: 'task', id: 'y' },
  ]);
  t.same(dispatch.stats(), { wanted: 0, sent: 2, resent: 2 });
});

t.test('a poll sends a bounded number of batches again', async (t) => {
  const { poll, world } = setUp('a');
  world.busy = ['a'];
  world.resends = Array.from({ length: 30 }, (_, n) => [attempt(`task ${n}`)]);
  await poll();
  t.equal(world.resendAsked.length, 20);
});

t.test('the time to start stands still while the bytes of a slow link move', async (t) => {
  const { poll, session, world } = setUp('a', 'b');
  world.busy = ['a', 'b'];
  Object.assign(session('a'), { isBackedUp: true, unsentBytes: 100 });
  await poll();
  t.same(world.backedUp, [['a']]);
  await poll();
  t.equal(world.backedUp.length, 1, 'no byte moved since the last poll');
  session('a').unsentBytes = 60;
  await poll();
  t.same(world.backedUp, [['a'], ['a']]);
  session('a').isBackedUp = false;
  await poll();
  t.equal(world.backedUp.length, 2);
});

t.test('a claimed task that cannot be read is read again when it is due to be sent again', async (t) => {
  const { hint, logged, poll, sent, world } = setUp('a');
  world.claimed = [[{ what: 'send', ...attempt('x') }]];
  world.refusals = [new Error('invalid page')];
  await hint('a');
  t.same(sent, []);
  matchLists(t, logged, [{ level: 'warn', task: 'x', reason: /invalid page/ }]);
  world.busy = ['a'];
  world.resends = [[attempt('x')]];
  await poll();
  matchLists(t, sent, [{ type: 'task', id: 'x' }]);
});

t.test('a task that is being read is not read a second time', async (t) => {
  const { clock, hint, poll, sent, world } = setUp('a');
  world.claimed = [[{ what: 'send', ...attempt('x') }]];
  world.refusals = [new DatabaseBusyError('slow')];
  world.busy = ['a'];
  world.resends = [[attempt('x')]];
  await hint('a');
  await poll();
  await clock.advance(10_000);
  matchLists(t, sent, [{ type: 'task', id: 'x' }]);
  world.resends = [[attempt('x')]];
  await poll();
  t.equal(sent.length, 2, 'once it was sent, it can be sent again');
});

/**
 * The concurrent pairs of the tasks on real Postgres, each behind a forced lock wait, in both
 * orders (law 5). In either order a task has one end, no ended session claims anything, and no
 * cancelled or swept task is claimed.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { sweepTasks } from '../../../lib/control/tasks/deadlines/deadline-store.ts';
import {
  type ClaimedAttempt,
  type ClaimResult,
  claimTasks,
  readInheritedTasks,
  resendTasks,
  settleInventory,
} from '../../../lib/control/tasks/dispatch/claim-store.ts';
import type { ChangedTask, WrittenTasks } from '../../../lib/control/tasks/store/change-result.ts';
import { type InventoryDecision, taskEnds } from '../../../lib/control/tasks/store/task.ts';
import {
  type CancelledTask,
  type CreatedTask,
  cancelTask,
  createTask,
} from '../../../lib/control/tasks/store/task-store.ts';
import { type Leg, runBehindLock } from '../../support/lock-waits.ts';
import { matchLists } from '../../support/match-lists.ts';
import { freshDatabase } from '../../support/postgres.ts';
import {
  accept,
  acceptSql,
  backdate,
  claim,
  claimAll,
  complete,
  create,
  migrations,
  newTask,
  overdueMs,
  record,
  resendMs,
  row,
  type Seat,
  seat,
  setUnknown,
} from './support/task-database.ts';

t.test('concurrent statements about tasks in both orders', async (t) => {
  const { url, open } = await freshDatabase(t, { migrations });
  const db = open({ maxConnections: 10 });

  const leg = <Result>(name: string, run: () => Promise<Result>): Leg<Result> => ({ name, run });
  const claiming = (mine: Seat) =>
    leg<ClaimResult>('claim', () => claimTasks(db, mine.run, { sessions: [mine], resendMs }));
  const cancelling = (id: string) => leg<CancelledTask | undefined>('cancel', () => cancelTask(db, id));
  const sweeping = leg<string[]>('sweep', () => sweepTasks(db, { startByMs: 30_000, overdueMs }));
  const completing = (mine: Seat, id: string, result = {}) =>
    leg<ChangedTask[]>('end', () => record(db, mine, id, complete(result)));
  /** The other statement of the pair, in progress. A report never waits for a locked row. */
  const endSql = ({ serverUuid }: Seat, id: string, result = '{}') =>
    `select * from cnapi_record_task_reports('{${id}}', '{${serverUuid}}', '{1}', '{complete}', '{then}', '{null}',
      array['${result}'], '{null}', '{null}', '{0}', 1000, 1000, null)`;
  const lockTask = (id: string) => `select 1 from cnapi_tasks where id = '${id}' for update`;
  const lockServer = ({ serverUuid }: Seat) =>
    `select 1 from cnapi_roster_authority where server_uuid = '${serverUuid}' for update`;
  /** The other statement of the pair, in progress. */
  const claimSql = ({ run, serverUuid, epoch, journalId }: Seat) =>
    `select * from cnapi_claim_for_sessions('${run}', '{${serverUuid}}', '{${epoch}}', '{${journalId}}', 5000,
      100, 100, 1000000, 10000000, 100, 1000000, 100)`;
  const sweepSql = `select * from cnapi_sweep_late_tasks(30, 60, '{"code":"NotTaken"}', '{}', '{"code":"TaskTimeout"}', 100,
    4000, 4000000, 48000000, 128, 16000000, true)`;

  async function queued(fields = {}) {
    const mine = await seat(db);
    return { mine, id: await create(db, mine.serverUuid, fields) };
  }
  async function claimed(fields = {}) {
    const made = await queued(fields);
    await claim(db, made.mine);
    return made;
  }
  /** A task claimed by a session that is over, which the new session is about to settle. */
  async function inherited() {
    const { mine: old, id } = await claimed();
    const mine = await accept(db, old);
    const [task] = await readInheritedTasks(db, [mine], 100);
    if (task === undefined) throw new Error('not inherited');
    const settling = (decision: InventoryDecision) =>
      leg<WrittenTasks>('inventory', () => settleInventory(db, mine.run, [{ task, session: mine, decision }]));
    /** The other statement of the pair, in progress: puts the task back into the queue. */
    const settleSql = `select * from cnapi_settle_inventories('${mine.run}', '{${id}}', '{${mine.serverUuid}}', '{${mine.epoch}}',
      '{${mine.journalId}}', '{1}', '{false}', '{again}', '{null}')`;
    return { old, mine, id, settling, settleSql };
  }
  const again: InventoryDecision = { kind: 'next-attempt', uncertain: false };

  t.test('accept then claim: the session is over, the task stays queued', async (t) => {
    const { mine, id } = await queued();
    const accepting = leg('accept', () => db.query(acceptSql, [mine.serverUuid, randomUUID()]));
    const [, claim] = await runBehindLock<[unknown, ClaimResult]>(url, lockServer(mine), [accepting, claiming(mine)]);
    matchLists(t, claim, { claimed: [], retrySoon: [mine.serverUuid] }, 'while the accept is in progress');
    matchLists(t, await claiming(mine).run(), { claimed: [], retrySoon: [] }, 'after it');
    t.match(await row(db, id), { state: 'queued', attempt: 0 });
  });

  t.test('claim then accept: the next session inherits the task', async (t) => {
    const { mine, id } = await queued();
    const accepting = leg('accept', () => accept(db, mine));
    const [next] = await runBehindLock<[Seat]>(url, claimSql(mine), [accepting]);
    matchLists(t, await readInheritedTasks(db, [next], 100), [{ id, attempt: 1 }]);
  });

  t.test('session loss then claim: nothing is claimed for a server that is unknown', async (t) => {
    const { mine } = await queued();
    const changing = leg('status change', () => setUnknown(db, mine.serverUuid));
    await runBehindLock<[unknown, ClaimResult]>(url, lockServer(mine), [changing, claiming(mine)]);
    matchLists(t, await claiming(mine).run(), { claimed: [], retrySoon: [] });
  });

  t.test('claim and claim: one of them gets the task', async (t) => {
    const { mine, id } = await queued();
    const [second] = await runBehindLock<[ClaimResult]>(url, claimSql(mine), [claiming(mine)]);
    matchLists(t, second, { claimed: [], retrySoon: [mine.serverUuid] });
    matchLists(t, await claiming(mine).run(), { claimed: [], retrySoon: [] });
    t.match(await row(db, id), { state: 'claimed', attempt: 1 });
  });

  t.test('a claim of many servers does not wait for one whose row is locked', async (t) => {
    const run = randomUUID();
    const seats = [await seat(db, { run }), await seat(db, { run })] as const;
    const ids = [await create(db, seats[0].serverUuid), await create(db, seats[1].serverUuid)] as const;
    const claimingBoth = leg('claim', () => claimTasks(db, run, { sessions: seats, resendMs }));
    const [{ claimed, retrySoon }] = await runBehindLock<[ClaimResult]>(url, lockServer(seats[0]), [claimingBoth]);
    t.same([claimed.map(({ id }) => id), retrySoon], [[ids[1]], [seats[0].serverUuid]]);
    matchLists(t, await claimAll(db, run, seats), [{ id: ids[0] }], 'its tasks are claimed when the row is free');
  });

  t.test('cancel then claim: the task has ended and is not claimed', async (t) => {
    const { mine, id } = await queued();
    t.match(await cancelling(id).run(), { isEnded: true });
    matchLists(t, await claiming(mine).run(), { claimed: [], retrySoon: [] });
    t.match(await row(db, id), { state: 'ended', attempt: 0, error: taskEnds.cancelled });
  });

  t.test('claim then cancel: the task is asked to end', async (t) => {
    const { mine, id } = await queued();
    const [cancelled] = await runBehindLock<[CancelledTask | undefined]>(url, claimSql(mine), [cancelling(id)]);
    t.match(cancelled, { isEnded: false });
    t.match(await row(db, id), { state: 'claimed', attempt: 1, outcome: null });
    matchLists(t, await claim(db, mine), [{ what: 'cancel', id }]);
  });

  t.test('cancel in progress, then claim: the task is left alone', async (t) => {
    const { mine, id } = await queued();
    const cancelSql = `update cnapi_tasks set state = 'ended', outcome = 'failure' where id = '${id}'`;
    const [claim] = await runBehindLock<[ClaimResult]>(url, cancelSql, [claiming(mine)]);
    t.same(claim.claimed, []);
    t.match(await row(db, id), { state: 'ended', attempt: 0 });
  });

  t.test('sweep in progress, then claim; claim in progress, then sweep', async (t) => {
    const one = await queued();
    await backdate(db, one.id, 31_000);
    const [claim] = await runBehindLock<[ClaimResult]>(url, sweepSql, [claiming(one.mine)]);
    t.same(claim.claimed, []);
    t.match(await row(db, one.id), { state: 'ended', error: { code: 'NotTaken' } });
    const two = await queued();
    await backdate(db, two.id, 31_000);
    t.same(await runBehindLock<[string[]]>(url, claimSql(two.mine), [sweeping]), [[]]);
    t.match(await row(db, two.id), { state: 'claimed' });
  });

  t.test('end then sweep: the end stands', async (t) => {
    const { mine, id } = await claimed({ timeoutMs: 1 });
    await backdate(db, id, 62_000);
    await setUnknown(db, mine.serverUuid);
    t.same(await runBehindLock<[string[]]>(url, endSql(mine, id), [sweeping]), [[]]);
    t.same(await sweeping.run(), []);
    t.match(await row(db, id), { outcome: 'complete' });
  });

  t.test('sweep then end: the sweep stands, and the end needs no record', async (t) => {
    const { mine, id } = await claimed({ timeoutMs: 1 });
    await backdate(db, id, 62_000);
    await setUnknown(db, mine.serverUuid);
    t.same(await runBehindLock<[ChangedTask[]]>(url, sweepSql, [completing(mine, id)]), [[]]);
    t.same(await completing(mine, id).run(), []);
    t.match(await row(db, id), { outcome: 'failure', error: { code: 'TaskTimeout' } });
  });

  t.test('accept then sweep: a server that has just returned is left to its authority', async (t) => {
    const { mine, id } = await claimed({ timeoutMs: 1 });
    await backdate(db, id, 62_000);
    await setUnknown(db, mine.serverUuid);
    const accepting = acceptSql.replace('$1', `'${mine.serverUuid}'`).replace('$2', `'${randomUUID()}'`);
    t.same(await runBehindLock<[string[]]>(url, accepting, [sweeping]), [[]]);
    t.same(await sweeping.run(), []);
  });

  t.test('end and end: the first one stands, on any instance', async (t) => {
    const { mine, id } = await claimed();
    const second = completing(mine, id, { from: 'second' });
    t.same(await runBehindLock<[ChangedTask[]]>(url, endSql(mine, id, '{"from":"first"}'), [second]), [[]]);
    t.same(await second.run(), []);
    t.match(await row(db, id), { result: { from: 'first' } });
    const { rows } = await db.query(`select 1 from cnapi_task_events where task_id = $1::uuid and name = 'end'`, [id]);
    t.equal(rows.length, 1);
  });

  t.test('cancel then end: the agent was faster, and its end stands', async (t) => {
    const { mine, id } = await claimed();
    const [cancelled, ended] = await runBehindLock<[CancelledTask | undefined, ChangedTask[]]>(url, lockTask(id), [
      cancelling(id),
      completing(mine, id),
    ]);
    t.match(cancelled, { isEnded: false });
    t.same(ended, [], 'it does not wait for a locked row');
    t.same(await completing(mine, id).run(), [{ id, ended: true }]);
    t.match(await row(db, id), { outcome: 'complete' });
  });

  t.test('end then cancel: there is nothing to cancel', async (t) => {
    const { mine, id } = await claimed();
    const behind = await runBehindLock<[CancelledTask | undefined]>(url, endSql(mine, id), [cancelling(id)]);
    t.same(behind, [undefined]);
    t.match(await row(db, id), { outcome: 'complete', cancel_requested_at: null });
  });

  t.test('create and create with one idempotency key: one task, whoever is first', async (t) => {
    const { serverUuid } = await seat(db);
    const winner = randomUUID();
    const insertSql = `insert into cnapi_tasks (id, server_uuid, name, params, timeout_ms, idempotent, idempotency_key,
      request_hash, created_at, queued_at)
      values ('${winner}', '${serverUuid}', 'nop', '{}', 1, false, 'key', 'hash', cnapi_now(), cnapi_now())`;
    const creating = leg('create', () => createTask(db, newTask(serverUuid, { idempotencyKey: 'key' })));
    const other = leg('create', () => createTask(db, newTask(serverUuid, { idempotencyKey: 'key', requestHash: 'x' })));
    const both = await runBehindLock<(CreatedTask | undefined)[]>(url, insertSql, [creating, other]);
    matchLists(t, both, [
      { id: winner, requestHash: 'hash' },
      { id: winner, requestHash: 'hash' },
    ]);
    const many = await Promise.all(
      Array.from({ length: 8 }, () => createTask(db, newTask(serverUuid, { idempotencyKey: 'another' }))),
    );
    t.equal(new Set(many.map((made) => made?.id)).size, 1);
  });

  const nothing: WrittenTasks = { changed: [], locked: [] };

  t.test('cancel then inventory: a decision made without knowing of the cancel is not carried out', async (t) => {
    const { id, settling } = await inherited();
    const [, settled] = await runBehindLock<[unknown, WrittenTasks]>(url, lockTask(id), [
      cancelling(id),
      settling(again),
    ]);
    t.same(settled, { changed: [], locked: [id] }, 'while the cancel is in progress');
    t.same(await settling(again).run(), nothing, 'after it');
    t.match(await row(db, id), { state: 'claimed', cancel_requested_at: Date });
  });

  t.test('inventory then cancel: a task put back into the queue ends at once', async (t) => {
    const { id, settleSql } = await inherited();
    const [cancelled] = await runBehindLock<[CancelledTask | undefined]>(url, settleSql, [cancelling(id)]);
    t.match(cancelled, { isEnded: true });
  });

  t.test('end and inventory: an end recorded elsewhere stands, and a late one is ignored', async (t) => {
    const one = await inherited();
    const [settled] = await runBehindLock<[WrittenTasks]>(url, endSql(one.old, one.id), [one.settling(again)]);
    t.same(settled, { changed: [], locked: [one.id] }, 'while the end is in progress');
    t.same(await one.settling(again).run(), nothing, 'after it');
    const two = await inherited();
    const [late] = await runBehindLock<[ChangedTask[]]>(url, two.settleSql, [completing(two.old, two.id)]);
    t.same(late, []);
    t.same(await completing(two.old, two.id).run(), []);
    t.match(await row(db, two.id), { state: 'queued' });
  });

  t.test('accept then inventory: the session is over and settles nothing', async (t) => {
    const { mine, id, settling } = await inherited();
    const accepting = leg('accept', () => accept(db, mine));
    const [, settled] = await runBehindLock<[unknown, WrittenTasks]>(url, lockServer(mine), [
      accepting,
      settling(again),
    ]);
    t.same(settled, { changed: [], locked: [id] }, 'while the accept is in progress');
    t.same(await settling(again).run(), nothing, 'after it');
    t.match(await row(db, id), { state: 'claimed', attempt: 1 });
  });

  t.test('an accepted attempt is not sent again although the statement found it before', async (t) => {
    const { mine, id } = await claimed();
    await backdate(db, id, 10_000);
    const acceptedSql = `update cnapi_tasks set accepted_at = cnapi_now() where id = '${id}'`;
    const resending = leg('resend', () => resendTasks(db, [mine], 5_000));
    t.same(await runBehindLock<[ClaimedAttempt[]]>(url, acceptedSql, [resending]), [[]]);
    t.same(await resending.run(), []);
  });
});

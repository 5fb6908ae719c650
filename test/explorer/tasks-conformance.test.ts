/**
 * Compares the small worlds' task rows with the statements themselves: the same operations give the
 * same rows and answers.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { sweepTasks } from '../../lib/control/tasks/deadlines/deadline-store.ts';
import {
  claimTasks,
  readInheritedTasks,
  resendTasks,
  settleInventory,
} from '../../lib/control/tasks/dispatch/claim-store.ts';
import type { InventoryDecision } from '../../lib/control/tasks/store/task.ts';
import { cancelTask } from '../../lib/control/tasks/store/task-store.ts';
import type { Database } from '../../lib/platform/postgres/database.ts';
import {
  accept,
  complete,
  create,
  migrations,
  record,
  type Seat,
  seat,
  setUnknown,
} from '../control/tasks/support/task-database.ts';
import { COMPUTING_TIMEOUT_MS } from '../support/patience.ts';
import { freshDatabase } from '../support/postgres.ts';
import { type Answers, checkConformance } from './conformance.ts';
import type { Dice } from './dice.ts';
import * as model from './tasks/model.ts';

/** One server and a few tasks for it. */
interface Scene {
  database: Database;
  dice: Dice;
  seat: Seat;
  runs: readonly string[];
  journals: readonly string[];
  fence: model.Fence;
  tasks: Map<string, model.TaskRow>;
}

const LONG_MS = 86_400_000;
const MAX_TASKS = 4;
const NONE: Answers = { real: undefined, model: undefined };

/** The session of the row, or one near it. */
function claimantOf({ dice, fence, runs, journals }: Scene): model.Claimant {
  const run = dice.chance(0.9) ? fence.run : dice.of(runs);
  return {
    run,
    epoch: Math.max(0, fence.epoch + dice.of([0, 0, 0, 0, 0, 0, 0, 0, -1, 1])),
    journalId: dice.of(journals),
  };
}

const sessionOf = ({ seat: { serverUuid } }: Scene, { epoch, journalId }: model.Claimant) => ({
  serverUuid,
  epoch,
  journalId,
});

const change = ({ tasks }: Scene, id: string, row: model.TaskRow | undefined): string[] => {
  if (row !== undefined) tasks.set(id, row);
  return row === undefined ? [] : [id];
};

/** Rarely a task that has ended. */
const some = ({ dice, tasks }: Scene): [string, model.TaskRow] | undefined =>
  dice.of([...tasks].filter(([, task]) => task.state !== 'ended' || dice.chance(0.2)));

const idsWhere = ({ tasks }: Scene, is: (task: model.TaskRow) => boolean): string[] =>
  [...tasks].flatMap(([id, task]) => (is(task) ? [id] : [])).sort();

const decisions: readonly InventoryDecision[] = [
  { kind: 'goes-on', started: false },
  { kind: 'goes-on', started: true },
  { kind: 'next-attempt', uncertain: false },
  { kind: 'next-attempt', uncertain: true },
  { kind: 'next-attempt', uncertain: false },
  { kind: 'fail', error: { code: 'Decided', message: 'it was decided so' } },
];

const operations: Record<string, (scene: Scene) => Promise<Answers>> = {
  async accept(scene) {
    const run = scene.dice.of(scene.runs);
    scene.seat = await accept(scene.database, scene.seat, { run });
    scene.fence = { run, epoch: scene.fence.epoch + 1, isRunning: true };
    return NONE;
  },
  async unknown(scene) {
    if (!scene.dice.chance(0.3)) return NONE;
    await setUnknown(scene.database, scene.seat.serverUuid);
    scene.fence = { ...scene.fence, isRunning: false };
    return NONE;
  },
  async create(scene) {
    if (idsWhere(scene, ({ state }) => state !== 'ended').length === MAX_TASKS) return NONE;
    const idempotent = scene.dice.chance(0.5);
    const id = await create(scene.database, scene.seat.serverUuid, { idempotent });
    scene.tasks.set(id, model.newTask(idempotent));
    return NONE;
  },
  async claim(scene) {
    const claimant = claimantOf(scene);
    const sent: unknown[] = [];
    for (const [id, task] of scene.tasks) {
      const claimed = model.claim(task, scene.fence, claimant);
      for (const given of change(scene, id, claimed)) sent.push(['send', given, claimed?.attempt]);
    }
    for (const id of idsWhere(scene, (task) => model.isToCancel(task, claimant)))
      sent.push(['cancel', id, scene.tasks.get(id)?.attempt]);
    const times = { resendMs: -1000 };
    const { claimed, cancels } = await claimTasks(scene.database, claimant.run, {
      sessions: [sessionOf(scene, claimant)],
      ...times,
    });
    const real = [
      ...claimed.map(({ id, attempt }) => ['send', id, attempt]),
      ...cancels.map(({ id, attempt }) => ['cancel', id, attempt]),
    ];
    return { real: real.sort(), model: sent.sort() };
  },
  async resend(scene) {
    const claimant = claimantOf(scene);
    const orders = await resendTasks(scene.database, [sessionOf(scene, claimant)], -1000);
    return {
      real: orders.map(({ id }) => id).sort(),
      model: idsWhere(scene, (task) => model.isToResend(task, claimant)),
    };
  },
  async inherited(scene) {
    const claimant = claimantOf(scene);
    const rows = await readInheritedTasks(scene.database, [sessionOf(scene, claimant)], 100);
    return {
      real: rows.map(({ id }) => id).sort(),
      model: idsWhere(scene, (task) => model.isInherited(task, claimant)),
    };
  },
  async settle(scene) {
    const [id, task] = some(scene) ?? [];
    if (id === undefined || task === undefined) return NONE;
    const { dice, seat: mine } = scene;
    const claimant = claimantOf(scene);
    const read = {
      attempt: task.attempt + dice.of([0, 0, 0, 0, 0, 0, 0, -1]),
      cancelRequested: dice.chance(0.9) ? task.cancelRequested : !task.cancelRequested,
    };
    const decision = dice.of(decisions);
    const row = model.settle(task, scene.fence, { claimant, read, decision });
    const inherited = {
      ...task,
      ...read,
      wasAccepted: task.isAccepted,
      hasStarted: task.isStarted,
      id,
      serverUuid: mine.serverUuid,
      journalId: task.journalId ?? '',
    };
    const settlement = { task: inherited, session: sessionOf(scene, claimant), decision };
    const { changed } = await settleInventory(scene.database, claimant.run, [settlement]);
    return {
      real: changed.map((one) => [one.id, one.ended]),
      model: change(scene, id, row).map((one) => [one, row?.state === 'ended']),
    };
  },
  async record(scene) {
    const [id, task] = some(scene) ?? [];
    if (id === undefined || task === undefined) return NONE;
    const attempt = Math.max(1, task.attempt + scene.dice.of([0, 0, 0, -1, 1]));
    const error = { code: 'Reported', message: 'so it says' };
    const report = scene.dice.of<model.ReportOf>([
      { name: 'accepted', attempt },
      { name: 'started', attempt },
      { name: 'accepted', attempt },
      { name: 'started', attempt },
      { name: 'complete', attempt },
      { name: 'failure', attempt, error },
    ]);
    const row = model.record(task, report);
    const said = report.name === 'complete' ? complete() : report;
    const changed = await record(scene.database, scene.seat, id, said, attempt);
    return {
      real: changed.map((one) => [one.id, one.ended]),
      model: change(scene, id, row).map((one) => [one, row?.state === 'ended']),
    };
  },
  async cancel(scene) {
    const [id, task] = some(scene) ?? [];
    if (id === undefined || task === undefined || !scene.dice.chance(0.2)) return NONE;
    const row = model.cancel(task);
    const cancelled = await cancelTask(scene.database, id);
    change(scene, id, row);
    return { real: cancelled?.isEnded, model: row && row.state === 'ended' };
  },
  async sweepQueued(scene) {
    return swept(scene, 'queued', { startByMs: -1000, overdueMs: LONG_MS });
  },
  async sweepClaimed(scene) {
    return swept(scene, 'claimed', { startByMs: LONG_MS, overdueMs: -10_000_000 });
  },
};

async function swept(scene: Scene, state: string, times: { startByMs: number; overdueMs: number }): Promise<Answers> {
  if (!scene.dice.chance(0.04)) return NONE;
  const ids = idsWhere(scene, (task) => task.state === state);
  for (const id of ids) change(scene, id, model.sweep(scene.tasks.get(id) as model.TaskRow));
  return { real: (await sweepTasks(scene.database, times)).sort(), model: ids };
}

t.setTimeout(COMPUTING_TIMEOUT_MS);

t.test('the model of the tasks gives the same rows as the statements of tasks', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const pool = () => [randomUUID(), randomUUID()];
  await checkConformance<Scene>(t, {
    seed: 20_260_102,
    sequences: 25,
    steps: 160,
    begin: async (dice) => {
      // A sweep covers all existing tasks.
      await database.query('truncate cnapi_tasks, cnapi_roster_authority cascade');
      const mine = await seat(database);
      const fence = { run: mine.run, epoch: mine.epoch, isRunning: true };
      return { database, dice, seat: mine, runs: [mine.run, ...pool()], journals: pool(), fence, tasks: new Map() };
    },
    operations,
    often: ['accept', 'claim', 'settle'],
    rows: async (scene) => ({ real: await stored(scene), model: expected(scene) }),
  });
});

async function stored({ database, seat: { serverUuid } }: Scene): Promise<unknown> {
  const { rows } = await database.query(
    `select id, state, outcome, error, attempt, epoch, journal_id as "journalId", uncertain, idempotent,
         accepted_at is not null as "isAccepted", started_at is not null as "isStarted",
         cancel_requested_at is not null as "cancelRequested"
       from cnapi_tasks where server_uuid = $1::uuid order by id`,
    [serverUuid],
  );
  return rows.map((row) => ({ ...row }));
}

function expected({ tasks }: Scene): unknown {
  const rows = [...tasks].map(([id, task]) => ({ id, ...task }));
  return rows.sort((one, other) => (one.id < other.id ? -1 : 1));
}

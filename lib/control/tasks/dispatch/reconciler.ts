/**
 * Reconciles an agent's inventory with the database when its server has a new session. Tasks that
 * an earlier session was given and the agent has continue. The others are decided
 * (`decideAtInventory`), and each decision is written under a guard. Tasks that have ended but that
 * the agent still works on are cancelled. Handles many inventories at a time, because a whole fleet
 * may connect concurrently. If an inventory cannot be settled (the database is down, a row is
 * locked, the instance's run is changing, the database refuses it), it is tried again while its
 * session lasts, and the others do not wait for it. Called by `Tasks`.
 */

import { DatabaseBusyError } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import { BatchQueue } from '../../../platform/postgres/batches/batch-queue.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import type { InventoryFrame } from '../../../protocol/link/frames.ts';
import type { TaskSession, TaskSessions } from '../sessions.ts';
import type { ChangedTask, WrittenTasks } from '../store/change-result.ts';
import { decideAtInventory } from '../store/task.ts';
import {
  type InventorySettlement,
  type RecordedState,
  readInheritedTasks,
  readRecordedStates,
  settleInventory,
} from './claim-store.ts';

interface ReconcilerDeps {
  database: Queryable;
  sessions: TaskSessions;
  clock: Clock;
  log: Logger;
  /** Wakes those who wait for these tasks, which changed. */
  onChanged: (changed: readonly ChangedTask[]) => void;
  /** The server's inventory is settled: claim for it. */
  onSettled: (serverUuid: string) => void;
}

type InventoryTask = InventoryFrame['tasks'][number];

interface Inventory {
  session: TaskSession;
  known: Map<string, InventoryTask>;
  /** What the agent works on, or holds, and this instance has not compared with its record yet. */
  unanswered: InventoryTask[];
}

const MAX_BATCH = 200;
/** Maximum of tasks settled together; a returning fleet has many more. */
const MAX_SETTLED = 2_000;
/** Maximum of rounds that leave a task unsettled. */
const MAX_ROUNDS = 5;

export class Reconciler {
  readonly #deps: ReconcilerDeps;
  readonly #inventories: BatchQueue<Inventory>;

  constructor(deps: ReconcilerDeps) {
    this.#deps = deps;
    this.#inventories = new BatchQueue<Inventory>({
      ...deps,
      what: 'comparison of inventories',
      keyOf: ({ session }) => session.serverUuid,
      join: (earlier, later) => (earlier.session.epoch > later.session.epoch ? earlier : later),
      maxBatch: MAX_BATCH,
      concurrency: 2,
      work: (batch, database) => this.#settle(batch, database),
    });
  }

  /** Number of inventories not settled yet. */
  get size(): number {
    return this.#inventories.size;
  }

  add(session: TaskSession, frame: InventoryFrame): void {
    const known = new Map(frame.tasks.map((task) => [task.id, task]));
    // The new inventory does not wait until that of an earlier session is tried again.
    if (this.#isCurrent(session)) this.#inventories.delete(session.serverUuid);
    const unanswered = frame.tasks.filter(({ state }) => state !== 'ended');
    this.#inventories.add({ session, known, unanswered });
  }

  async stop(): Promise<void> {
    await this.#inventories.stop();
  }

  /** Returns the inventories that are not settled completely. */
  async #settle(batch: readonly Inventory[], database: Queryable): Promise<Inventory[]> {
    const current = batch.filter(({ session }) => this.#isCurrent(session));
    const open = new Set(await this.#settleInRounds(current, database));
    await this.#answer(current, database);
    const left = current.filter((inventory) => open.has(inventory) || inventory.unanswered.length > 0);
    // After the answers, so that no new task overtakes those that the agent has held.
    for (const inventory of current) if (!left.includes(inventory)) this.#deps.onSettled(inventory.session.serverUuid);
    return left;
  }

  /** The tasks of an ended session are left to the next session's inventory. */
  #isCurrent({ serverUuid, epoch }: TaskSession): boolean {
    return this.#deps.sessions.get(serverUuid)?.epoch === epoch;
  }

  /**
   * Returns the inventories with tasks whose rows are locked or kept changing. @throws
   * DatabaseBusyError to have the batch divided
   */
  async #settleInRounds(inventories: readonly Inventory[], database: Queryable): Promise<Inventory[]> {
    const blocked: Inventory[] = [];
    let open = inventories;
    for (let round = 0; round < MAX_ROUNDS && open.length > 0; ) {
      const settlements = await this.#decide(open, database);
      const { changed, locked } = await this.#carryOut(settlements, database);
      const isPart = settlements.length === MAX_SETTLED;
      if (isPart && changed.length > 0) continue;
      // Every row that was read is locked, and the limit hides the tasks of other servers.
      if (isPart && open.length > 1) throw new DatabaseBusyError('locked');
      round += 1;
      const done = new Set(changed.map(({ id }) => id));
      const inUse = new Set(locked);
      const unsettled = serversOf(settlements, (id) => !done.has(id));
      const skipped = serversOf(settlements, (id) => inUse.has(id));
      blocked.push(...open.filter(({ session }) => skipped.has(session.serverUuid)));
      open = open.filter(({ session: { serverUuid } }) => unsettled.has(serverUuid) && !skipped.has(serverUuid));
    }
    return [...blocked, ...open];
  }

  async #carryOut(settlements: readonly InventorySettlement[], database: Queryable): Promise<WrittenTasks> {
    if (settlements.length === 0) return { changed: [], locked: [] };
    const written = await settleInventory(database, this.#deps.sessions.run(), settlements);
    this.#deps.onChanged(written.changed);
    return written;
  }

  async #decide(inventories: readonly Inventory[], database: Queryable): Promise<InventorySettlement[]> {
    const byServer = new Map(inventories.map((inventory) => [inventory.session.serverUuid, inventory]));
    const inherited = await readInheritedTasks(
      database,
      inventories.map(({ session }) => session),
      MAX_SETTLED,
    );
    return inherited.flatMap((task) => {
      const inventory = byServer.get(task.serverUuid);
      if (inventory === undefined) return [];
      const { session, known: knownTasks } = inventory;
      const decision = decideAtInventory(task, { journalId: session.journalId, known: knownTasks.get(task.id) });
      this.#log(task.id, task.attempt, session, decision);
      return [{ task, session, decision }];
    });
  }

  #log(taskId: string, attempt: number, session: TaskSession, decision: { kind: string }): void {
    const { serverUuid, epoch } = session;
    this.#deps.log.debug({ task: taskId, attempt, server_uuid: serverUuid, epoch, ...decision }, 'task: at inventory');
  }

  /**
   * Tasks that ended while the agent was disconnected (by a timeout, for example) and that the
   * agent still has: it must stop them, and not continue held ones of which no record is left. It
   * continues the other held ones, except those whose rows are locked: a later attempt answers
   * these.
   */
  async #answer(batch: readonly Inventory[], database: Queryable): Promise<void> {
    const asked = batch.flatMap(({ session: { serverUuid, epoch }, unanswered }) =>
      unanswered.map(({ id }) => ({ serverUuid, id, epoch })),
    );
    if (asked.length === 0) return;
    const recorded = Map.groupBy(await readRecordedStates(database, asked), ({ serverUuid }) => serverUuid);
    for (const inventory of batch) {
      const rows = recorded.get(inventory.session.serverUuid) ?? [];
      answerInventory(inventory, new Map(rows.map(({ id, recorded: state }) => [id, state])));
    }
  }
}

function answerInventory(inventory: Inventory, recorded: ReadonlyMap<string, RecordedState>): void {
  const { session, unanswered } = inventory;
  const continued: string[] = [];
  inventory.unanswered = [];
  for (const task of unanswered) {
    const { id, attempt, held } = task;
    const state = recorded.get(id) ?? (held ? 'ended' : 'open');
    if (state === 'ended') session.send({ type: 'task_cancel', id, attempt });
    else if (held && state === 'unsettled') inventory.unanswered.push(task);
    else if (held) continued.push(id);
  }
  if (continued.length > 0) session.send({ type: 'inventory_settled', epoch: session.epoch, tasks: continued });
}

function serversOf(settlements: readonly InventorySettlement[], isMeant: (taskId: string) => boolean): Set<string> {
  return new Set(settlements.flatMap(({ task }) => (isMeant(task.id) ? [task.serverUuid] : [])));
}

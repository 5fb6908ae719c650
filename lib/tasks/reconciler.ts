/**
 * Brings an agent's inventory and the database together when its server has a new session: what earlier sessions were
 * given and the agent has goes on, the rest is decided (`decideAtInventory`) and carried out guarded; what has ended
 * meanwhile and is still worked on is cancelled. Many inventories at a time: a whole fleet may come at once.
 * An inventory that cannot be settled (the database is away, the instance's run is changing) is kept while its session
 * lasts. Called by the dispatcher.
 */
import type { Logger } from '../log.ts';
import type { Queryable } from '../moray/database.ts';
import type { Clock } from '../ports/clock.ts';
import { Runner } from '../waits/runner.ts';
import type { InventoryFrame } from '../wire/frames.ts';
import { type ChangedTask, readEnded, readInherited, type Settlement, settleInventory } from './claim-store.ts';
import type { TaskSession, TaskSessions } from './sessions.ts';
import { decideAtInventory } from './task.ts';

export interface ReconcilerDeps {
  database: Queryable;
  sessions: TaskSessions;
  clock: Clock;
  log: Logger;
  /** These changed: tell whoever waits for them. */
  onChanged: (changed: readonly ChangedTask[]) => void;
  /** The server's inventory is settled: claim for it. */
  onSettled: (serverUuid: string) => void;
}

interface Inventory {
  session: TaskSession;
  known: Map<string, InventoryFrame['tasks'][number]>;
}

const MAX_BATCH = 200;
/** Tasks at once; a fleet that comes back has many more. */
const MAX_SETTLED = 2_000;
/** That leave something open as it was. */
const MAX_ROUNDS = 5;

export class Reconciler {
  readonly #deps: ReconcilerDeps;
  readonly #runner: Runner;
  readonly #waiting = new Map<string, Inventory>();
  /** Not settled in MAX_ROUNDS; tried again by the slow poll. */
  readonly #unsettled = new Map<string, Inventory>();

  constructor(deps: ReconcilerDeps) {
    this.#deps = deps;
    this.#runner = new Runner({
      clock: deps.clock,
      log: deps.log,
      what: 'comparison of inventories',
      hasWork: () => this.#waiting.size > 0,
      work: () => this.#settleBatch(),
      lanes: 2,
    });
  }

  /** Inventories not settled yet. */
  get size(): number {
    return this.#waiting.size + this.#unsettled.size;
  }

  add(session: TaskSession, frame: InventoryFrame): void {
    if (this.#newestEpoch(session.serverUuid) > session.epoch) return;
    this.#unsettled.delete(session.serverUuid);
    this.#waiting.set(session.serverUuid, { session, known: new Map(frame.tasks.map((task) => [task.id, task])) });
    this.#runner.kick();
  }

  /** Tries again what was left; forgets what belongs to sessions that are over. */
  poll(): void {
    for (const [serverUuid, inventory] of this.#unsettled) {
      this.#unsettled.delete(serverUuid);
      const current = this.#deps.sessions.get(serverUuid);
      if (current?.epoch === inventory.session.epoch) this.#waiting.set(serverUuid, inventory);
    }
    this.#runner.kick();
  }

  stop(): Promise<void> {
    return this.#runner.stop();
  }

  async #settleBatch(): Promise<void> {
    const batch = this.#take();
    try {
      await this.#settle(batch);
      await this.#cancelEnded(batch);
    } catch (error) {
      for (const inventory of batch) this.#putBack(inventory, this.#waiting);
      throw error;
    }
  }

  #take(): Inventory[] {
    const batch = [...this.#waiting.values()].slice(0, MAX_BATCH);
    for (const { session } of batch) this.#waiting.delete(session.serverUuid);
    return batch;
  }

  /** What a later session, or this one, has said since stands. */
  #putBack(inventory: Inventory, queue: Map<string, Inventory>): void {
    const { serverUuid, epoch } = inventory.session;
    if (this.#newestEpoch(serverUuid) > epoch) return;
    if (this.#waiting.has(serverUuid) || this.#unsettled.has(serverUuid)) return;
    queue.set(serverUuid, inventory);
  }

  /** Of the server's sessions that are known here; one that is over leaves it to the next one's inventory. */
  #newestEpoch(serverUuid: string): number {
    return Math.max(
      this.#deps.sessions.get(serverUuid)?.epoch ?? 0,
      this.#waiting.get(serverUuid)?.session.epoch ?? 0,
      this.#unsettled.get(serverUuid)?.session.epoch ?? 0,
    );
  }

  async #settle(batch: readonly Inventory[]): Promise<void> {
    let open = batch;
    for (let round = 0; round < MAX_ROUNDS && open.length > 0; ) {
      const settlements = await this.#decide(open);
      const changed =
        settlements.length === 0
          ? []
          : await settleInventory(this.#deps.database, this.#deps.sessions.run(), settlements);
      this.#deps.onChanged(changed);
      const isPart = settlements.length === MAX_SETTLED;
      if (!isPart || changed.length === 0) round++;
      if (isPart) continue;
      const done = new Set(changed.map((task) => task.id));
      const left = new Set(settlements.flatMap(({ task }) => (done.has(task.id) ? [] : [task.serverUuid])));
      for (const { session } of open) if (!left.has(session.serverUuid)) this.#deps.onSettled(session.serverUuid);
      open = open.filter(({ session }) => left.has(session.serverUuid));
    }
    for (const inventory of open) this.#putBack(inventory, this.#unsettled);
  }

  async #decide(inventories: readonly Inventory[]): Promise<Settlement[]> {
    const byServer = new Map(inventories.map((inventory) => [inventory.session.serverUuid, inventory]));
    const inherited = await readInherited(
      this.#deps.database,
      inventories.map(({ session }) => session),
      MAX_SETTLED,
    );
    return inherited.flatMap((task) => {
      const inventory = byServer.get(task.serverUuid);
      if (inventory === undefined) return [];
      const { session, known } = inventory;
      const decision = decideAtInventory(task, { journalId: session.journalId, known: known.get(task.id) });
      this.#log(task.id, task.attempt, session, decision);
      return [{ task, session, decision }];
    });
  }

  #log(task: string, attempt: number, session: TaskSession, decision: { kind: string }): void {
    const { serverUuid, epoch } = session;
    this.#deps.log.debug({ task, attempt, server_uuid: serverUuid, epoch, ...decision }, 'task at inventory');
  }

  /** Ended while the agent was away (timed out, say), and the agent still has it: it is to stop. */
  async #cancelEnded(batch: readonly Inventory[]): Promise<void> {
    const working = batch.flatMap(({ session, known }) =>
      [...known.values()].flatMap((task) => (task.state === 'ended' ? [] : [{ session, task }])),
    );
    if (working.length === 0) return;
    const ended = await readEnded(
      this.#deps.database,
      working.map(({ task }) => task.id),
    );
    for (const { session, task } of working) {
      if (ended.has(task.id)) session.send({ type: 'task_cancel', id: task.id, attempt: task.attempt });
    }
  }
}

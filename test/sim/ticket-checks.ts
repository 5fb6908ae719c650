/** I4: a queue has one holder, the first of it, and ended tickets do not change. */
import type { TicketRow } from './changes.ts';
import type { Hold } from './workload.ts';
import type { World } from './world.ts';

/** The possible difference between a holder's clock and the database's in this simulation. */
const SLACK_MS = 300;

export class TicketChecks {
  readonly #world: World;
  readonly #rows = new Map<string, TicketRow>();
  readonly #touched = new Set<number>();
  readonly #wereActive = new Set<string>();
  /** When a ticket last changed its status. */
  readonly #movedAt = new Map<string, number>();

  constructor(world: World) {
    this.#world = world;
  }

  movedAt(uuid: string): number | undefined {
    return this.#movedAt.get(uuid);
  }

  statusOf(uuid: string): TicketRow['status'] | undefined {
    return this.#rows.get(uuid)?.status;
  }

  wasActive(uuid: string): boolean {
    return this.#wereActive.has(uuid);
  }

  rowChanged(before: TicketRow | null, after: TicketRow | null): void {
    const ticket = after ?? before;
    if (ticket === null) return;
    if (after === null) this.#rows.delete(ticket.uuid);
    else this.#rows.set(after.uuid, after);
    if (after?.status === 'active') this.#wereActive.add(ticket.uuid);
    this.#touched.add(ticket.queue);
    this.#movedAt.set(ticket.uuid, this.#world.time.now);
    const wasOver = before?.status === 'finished' || before?.status === 'expired';
    if (wasOver && after !== null && after.status !== before.status)
      this.#world.violated('I4', `ticket ${ticket.uuid}: ${before.status} -> ${after.status}`);
  }

  /** Every statement leaves its queues in order. */
  committed(): void {
    for (const queue of this.#touched) this.#checkQueue(queue);
    this.#touched.clear();
  }

  #checkQueue(queue: number): void {
    const inQueue = [...this.#rows.values()].filter((ticket) => ticket.queue === queue);
    const active = inQueue.filter(({ status }) => status === 'active');
    const queued = inQueue.filter(({ status }) => status === 'queued');
    if (active.length > 1) this.#world.violated('I4', `queue ${queue} has ${active.length} active tickets`);
    if (active.length === 0 && queued.length > 0)
      this.#world.violated('I4', `queue ${queue}: ${queued.length} tickets wait, but none is active`);
    const [holder] = active;
    if (holder !== undefined && queued.some(({ place }) => place < holder.place))
      this.#world.violated('I4', `queue ${queue}: the ticket at place ${holder.place} is active before its turn`);
  }

  /** Checks at the end what callers believed. */
  checkHold(hold: Hold, all: readonly Hold[]): void {
    const other = all.find(
      (one) => one !== hold && one.queue === hold.queue && one.from >= hold.from && one.from < hold.until - SLACK_MS,
    );
    if (other !== undefined && other.from < other.until)
      this.#world.violated('I4', `${hold.ticket} and ${other.ticket} held ${hold.queue} at the same time`);
  }
}

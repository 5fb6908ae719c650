/**
 * A ticket is a lock: by the answers to the clients, no two hold the lock of a queue at the
 * same time, and they hold it in the order of creation; by the database, a queue is never idle.
 * docs/design.md I4.
 *
 * A ticket was certainly active from the answer that said so until its release was requested, or
 * until the end of its lifetime, counted from the request of its creation or renewal on the same
 * machine's clock.
 */

import { Findings } from '../findings.ts';
import type { Op, StoredTicket } from '../history.ts';
import { groupBy, type World } from '../world.ts';
import { CLOCKS_MS } from './tasks.ts';

interface Hold {
  ticket: string;
  /** The time of its creation. */
  askedAt: number;
  answeredAt: number;
  from: number;
  to: number;
}

export function noTwoHolders(world: World): Findings {
  const found = new Findings('a lock has one holder', 'locks');
  for (const [queue, holds] of holdsByQueue(world)) {
    let before: Hold | undefined;
    for (const hold of holds) {
      const other = before;
      const text = () =>
        `${hold.ticket} held ${queue} from ${Math.round(hold.from)} and ${other?.ticket} until ${Math.round(other?.to ?? 0)}`;
      found.holds(other === undefined || other.to <= hold.from, hold.from, text);
      if (before === undefined || hold.to > before.to) before = hold;
    }
  }
  return found;
}

export function locksGoInOrder(world: World): Findings {
  const found = new Findings('locks are granted in order', 'locks');
  for (const [queue, holds] of holdsByQueue(world)) {
    let latest: Hold | undefined;
    for (const hold of holds) {
      const other = latest;
      const text = () =>
        `${other?.ticket} held ${queue} before ${hold.ticket}, which was created before the other was requested`;
      found.holds(other === undefined || hold.answeredAt >= other.askedAt, hold.from, text);
      if (latest === undefined || hold.askedAt > latest.askedAt) latest = hold;
    }
  }
  for (const [queue, tickets] of groupBy(world.evidence.stored.tickets, (ticket) => ticket.queue))
    checkQueue(world, found, { queue, tickets });
  return found;
}

function checkQueue(
  world: World,
  found: Findings,
  { queue, tickets }: { queue: string; tickets: readonly StoredTicket[] },
): void {
  let before: StoredTicket | undefined;
  for (const ticket of [...tickets].sort((a, b) => a.row - b.row || a.place - b.place)) {
    const at = world.fromWall(ticket.updatedAt);
    const isEnded = ticket.status === 'finished' || ticket.status === 'expired';
    found.holds(isEnded, at, () => `${ticket.uuid} of ${queue} is still ${ticket.status}`);
    if (ticket.activeAt === null) continue;
    const other = before;
    if (other?.activeAt) {
      const isInOrder = other.activeAt <= ticket.activeAt && other.updatedAt <= ticket.activeAt + CLOCKS_MS;
      found.holds(
        isInOrder,
        at,
        () => `${ticket.uuid} of ${queue} was active before ${other.uuid}, which was ahead of it, had ended`,
      );
      const idleMs = ticket.activeAt - Math.max(other.updatedAt, ticket.createdAt);
      found.holds(idleMs <= 1_000, at, () => `${queue} was idle for ${idleMs} ms before ${ticket.uuid}`);
    }
    before = ticket;
  }
}

/** An answer says that a ticket is active only after it became active. */
export function waitsForLocksAreTrue(world: World): Findings {
  const found = new Findings('a wait is answered when the lock is held', 'locks');
  const tickets = new Map(world.evidence.stored.tickets.map((ticket) => [ticket.uuid, ticket]));
  for (const { op, ticket: uuid, status, overAt } of world.ops) {
    if (op === 'ticket' && status === 202)
      found.holds(tickets.has(uuid ?? ''), overAt, () => `ticket ${uuid} was accepted and is not in the database`);
    if (op !== 'ticket-wait' || status !== 204) continue;
    const activeAt = tickets.get(uuid ?? '')?.activeAt;
    const isTrue = activeAt !== undefined && activeAt !== null && world.fromWall(activeAt) <= overAt + CLOCKS_MS;
    found.holds(isTrue, overAt, () => `${uuid} was reported as active and was not`);
  }
  return found;
}

/** The holds of each queue, in the order in which they began. */
function holdsByQueue(world: World): Map<string, Hold[]> {
  const holds = new Map<string, Hold[]>();
  const byTicket = groupBy(world.ops, ({ ticket }) => ticket);
  for (const [ticket, ops] of byTicket) {
    const created = ops.find(({ op, status }) => op === 'ticket' && status === 202);
    const hold = created && holdOf(ticket, created, ops);
    if (hold === undefined || created?.queue === undefined) continue;
    holds.set(created.queue, [...(holds.get(created.queue) ?? []), hold]);
  }
  for (const each of holds.values()) each.sort((a, b) => a.from - b.from);
  return holds;
}

function holdOf(ticket: string, created: Op, ops: readonly Op[]): Hold | undefined {
  const active = ops.filter(
    ({ op, status, reported }) =>
      (op === 'ticket-wait' && status === 204) || (op === 'renew' && status === 200 && reported === 'active'),
  );
  const prolonged = ops.filter(({ op, status }) => (op === 'renew' && status === 200) || op === 'ticket');
  const released = ops.filter(({ op }) => op === 'release').map(({ askedAt }) => askedAt);
  const from = Math.min(...active.map(({ overAt }) => overAt));
  const lasts = Math.max(...prolonged.map(({ askedAt, expiresInMs = 0 }) => askedAt + expiresInMs - 20));
  const to = Math.min(lasts, ...released);
  if (active.length === 0 || to <= from) return undefined;
  return { ticket, askedAt: created.askedAt, answeredAt: created.overAt, from, to };
}

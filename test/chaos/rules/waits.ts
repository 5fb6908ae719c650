/**
 * Waits end in time, and every request to an undisturbed instance is answered as the API defines.
 * docs/design.md I5.
 */

import { Findings } from '../findings.ts';
import type { Op, Operation } from '../history.ts';
import type { World } from '../world.ts';

/**
 * docs/design.md I5: a wait ends within this time of its event even if every message is
 * lost.
 */
const SLOW_POLL_MS = 5_000;
/**
 * A wait whose event came just before a database outage reads it only some time after the outage.
 */
const BEFORE_MS = 10_000;

export function waitsEnd(world: World): Findings {
  const found = new Findings('waits end', 'waits');
  const activeAt = new Map(world.evidence.stored.tickets.map(({ uuid, activeAt }) => [uuid, activeAt]));
  for (const op of world.ops) {
    if ((op.op !== 'wait' && op.op !== 'ticket-wait') || op.status === 0) continue;
    const { askedAt, overAt, timeoutMs = 0, workload } = op;
    inTime(world, found, op, { from: askedAt, withinMs: timeoutMs, what: 'its timeout' });
    const causeWall = op.task === undefined ? activeAt.get(op.ticket ?? '') : world.tasks.get(op.task)?.endedAt;
    if (causeWall === undefined || causeWall === null) continue;
    const from = Math.max(askedAt, world.fromWall(causeWall));
    if (from <= overAt) inTime(world, found, op, { from, withinMs: SLOW_POLL_MS, what: 'its event' });
    else found.holds(true, overAt, () => '', workload);
  }
  return found;
}

function inTime(
  world: World,
  found: Findings,
  op: Op,
  { from, withinMs, what }: { from: number; withinMs: number; what: string },
): void {
  const { instance, overAt, workload } = op;
  const slack = world.slackMs(from, overAt) ?? Number.POSITIVE_INFINITY;
  const lateMs = overAt - from - withinMs;
  const isLate = lateMs > slack;
  const canSay = slack !== Number.POSITIVE_INFINITY && !world.disturbanceOf(instance, from - BEFORE_MS, overAt);
  if (lateMs > 1_500 && !canSay) return found.void(overAt, workload);
  const text = () =>
    `a wait for ${op.task ?? op.ticket} at instance-${instance} ended ${Math.round(overAt - from)} ms after ${what}`;
  found.holds(!isLate, overAt, text, workload);
}

/** The possible answers of each request besides 503; other rules check the reasons for a 409. */
const ANSWERS: Record<Operation, readonly number[]> = {
  create: [202, 409],
  wait: [200, 404],
  get: [200, 404],
  cancel: [202, 404, 409],
  ticket: [202],
  'ticket-wait': [204, 408, 409],
  renew: [200, 409],
  release: [204],
  servers: [200],
  push: [201],
  'push-get': [200, 404],
  'push-abort': [202, 409],
};

export function requestsAreAnswered(world: World): Findings {
  const found = new Findings('requests are answered', 'status');
  for (const op of world.ops) {
    const { instance, askedAt, overAt, status, workload, code } = op;
    const what = `${op.op} ${op.task ?? op.ticket ?? op.server ?? ''} at instance-${instance}`;
    const isExpiry = op.op === 'ticket-wait' && status === 500 && op.reported === 'expired';
    if (status !== 0 && status !== 503) {
      const isFit = ANSWERS[op.op].includes(status) || isExpiry;
      found.holds(isFit, overAt, () => `${what} was answered with ${status} ${code ?? ''}`, workload);
    } else if (world.disturbanceOf(instance, askedAt - 1_000, overAt) || world.slackMs(askedAt, overAt) === undefined) {
      found.void(overAt, workload);
    } else {
      const answer = status === 0 ? `not answered (${code})` : `answered with 503 ${code}`;
      found.holds(false, overAt, () => `${what} was ${answer} after ${Math.round(overAt - askedAt)} ms`, workload);
    }
  }
  return found;
}

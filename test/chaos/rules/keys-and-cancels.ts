/**
 * One key gives one task; a cancel ends its task, and no other task is reported cancelled.
 * docs/design/tasks.md.
 */

import { Findings } from '../findings.ts';
import type { Op } from '../history.ts';
import { groupBy, type World } from '../world.ts';
import { CLOCKS_MS } from './tasks.ts';

export function keysGiveOneTask(world: World): Findings {
  const found = new Findings('a key gives one task', 'keys');
  const creates = groupBy(
    world.ops.filter(({ op, key }) => op === 'create' && key !== undefined),
    ({ key }) => key,
  );
  for (const [key, ops] of creates) checkKey(found, key, ops);
  const asked = new Set(creates.keys());
  const seen = new Map<string, string>();
  for (const { id, key, createdAt } of world.tasks.values()) {
    const at = world.fromWall(createdAt);
    found.holds(key !== null && asked.has(key), at, () => `${id} is stored and no client requested it`);
    const other = seen.get(key ?? '');
    found.holds(other === undefined, at, () => `${id} and ${other} are stored under one key`);
    seen.set(key ?? '', id);
  }
  return found;
}

function checkKey(found: Findings, key: string, ops: readonly Op[]): void {
  const accepted = ops.filter(({ status }) => status === 202);
  const ids = new Set(accepted.map(({ task }) => task));
  const at = ops.at(-1)?.overAt ?? 0;
  const workload = ops[0]?.workload ?? 'keys';
  found.holds(ids.size <= 1, at, () => `the key ${key} was answered with ${[...ids].join(' and ')}`, workload);
  const bodies = new Set(accepted.map(({ body }) => body));
  found.holds(bodies.size <= 1, at, () => `two different requests under the key ${key} were accepted`, workload);
  const sent = new Set(ops.map(({ body }) => body));
  const isRefused = ops.some(({ code }) => code === 'IdempotencyConflict');
  found.holds(
    !isRefused || sent.size > 1,
    at,
    () => `the key ${key} was refused as used for another request`,
    workload,
  );
}

/** Longer than any fault lasts, and shorter than the cancelled task would take by itself. */
const CANCELLED_WITHIN_MS = 60_000;

export function cancelsEnd(world: World): Findings {
  const found = new Findings('cancels end', 'cancels');
  for (const op of world.ops) {
    const task = world.tasks.get(op.task ?? '');
    if (op.op !== 'cancel' || task === undefined || task.endedAt === null) continue;
    const endedAt = world.fromWall(task.endedAt);
    const text = (what: string) => () => `${task.id} ${what} (${task.errorCode ?? task.outcome})`;
    const lateMs = Math.round(endedAt - op.overAt);
    if (op.status === 202)
      found.holds(lateMs <= CANCELLED_WITHIN_MS, op.overAt, text(`ended ${lateMs} ms after its cancel was accepted`));
    if (op.status === 409)
      found.holds(lateMs <= CLOCKS_MS, op.overAt, text(`was reported as ended ${lateMs} ms before its end`));
  }
  return found;
}

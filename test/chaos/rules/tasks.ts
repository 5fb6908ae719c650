/**
 * Nothing that was accepted is missing, each task ends once, and all answers about it agree.
 * docs/design.md I3, I6; laws 2, 6.
 */

import { Findings } from '../findings.ts';
import type { Op } from '../history.ts';
import { groupBy, type World } from '../world.ts';

/** The difference between two clocks of one machine that are read one after the other. */
export const CLOCKS_MS = 200;

export function nothingAcceptedIsMissing(world: World): Findings {
  const found = new Findings('nothing accepted is missing', 'tasks');
  const acceptedAt = new Map<string, number>();
  for (const op of world.ops) {
    if (op.op !== 'create' || op.status !== 202 || op.task === undefined) continue;
    acceptedAt.set(op.task, Math.min(op.overAt, acceptedAt.get(op.task) ?? op.overAt));
    const isStored = world.tasks.has(op.task);
    found.holds(isStored, op.overAt, () => `${op.task} was accepted and is not in the database`, op.workload);
  }
  for (const op of world.ops) {
    const since = acceptedAt.get(op.task ?? '');
    if (since === undefined || since > op.askedAt || !['wait', 'get', 'cancel'].includes(op.op)) continue;
    const text = () => `instance-${op.instance} does not know ${op.task}, which was accepted before this request`;
    if (op.status !== 0) found.holds(op.status !== 404, op.overAt, text, op.workload);
  }
  return found;
}

export function eachTaskEndsOnce(world: World): Findings {
  const found = new Findings('each task ends once', 'tasks');
  const workloads = new Map(world.entries('intent').map(({ key, workload }) => [key, workload]));
  for (const task of world.tasks.values()) {
    const at = world.fromWall(task.endedAt ?? task.createdAt);
    const { id, state, ends, attempt, retries, outcome } = task;
    const workload = workloads.get(task.key ?? '') ?? 'tasks';
    found.holds(state === 'ended' && ends === 1, at, () => `${id} is ${state} with ${ends} ends`, workload);
    const isCounted = outcome !== 'complete' || attempt === retries + 1;
    found.holds(isCounted, at, () => `${id} completed at attempt ${attempt} after ${retries} retries`, workload);
  }
  return found;
}

/**
 * All tasks except cancelled ones take at most 4 s. The rest is for a session to return, a slow
 * poll, and sending again. Time during a fault of the server's agent, or of what holds sessions,
 * does not count.
 */
const ENDS_WITHIN_MS = 30_000;

export function tasksEndInTime(world: World): Findings {
  const found = new Findings('tasks end in time', 'tasks');
  const workloads = new Map(world.entries('intent').map(({ key, workload }) => [key, workload]));
  for (const { id, key, server, createdAt, endedAt } of world.tasks.values()) {
    const workload = workloads.get(key ?? '') ?? 'tasks';
    if (workload === 'cancels') continue;
    const [from, to] = [world.fromWall(createdAt), endedAt === null ? world.endAt : world.fromWall(endedAt)];
    if (to - from <= ENDS_WITHIN_MS) {
      found.holds(true, to, () => '', workload);
      continue;
    }
    const undisturbedMs = to - from - world.disturbedMs(server, from, to);
    const slack = world.slackMs(from, to);
    if (undisturbedMs > ENDS_WITHIN_MS && slack === undefined) found.void(to, workload);
    else {
      const text = () => `${id} took ${Math.round(to - from)} ms, ${Math.round(undisturbedMs)} of them undisturbed`;
      found.holds(undisturbedMs <= ENDS_WITHIN_MS + (slack ?? 0), to, text, workload);
    }
  }
  return found;
}

/** An end is answered only once it is recorded, as it is recorded, and from then on always. */
export function answersAboutATaskAgree(world: World): Findings {
  const found = new Findings('answers about a task agree', 'tasks');
  const answers = world.ops.filter(
    ({ op, reported }) => reported !== undefined && ['wait', 'get', 'cancel'].includes(op),
  );
  for (const [id, ops] of groupBy(answers, ({ task }) => task)) {
    for (const op of ops) if (op.reported !== 'active') agreesWithRecord(world, found, op);
    neverGoesBack(found, id, ops);
  }
  return found;
}

function agreesWithRecord(world: World, found: Findings, op: Op): void {
  const stored = world.tasks.get(op.task ?? '');
  if (stored === undefined) return;
  const { id, outcome, endedAt } = stored;
  const isSame = op.reported === outcome;
  found.holds(isSame, op.overAt, () => `${id} was answered as ${op.reported} and is stored as ${outcome}`, op.workload);
  const recordedAt = endedAt === null ? Number.POSITIVE_INFINITY : world.fromWall(endedAt);
  const late = () =>
    `${id} was answered as ${op.reported} ${Math.round(recordedAt - op.overAt)} ms before that was recorded`;
  found.holds(recordedAt <= op.overAt + CLOCKS_MS, op.overAt, late, op.workload);
}

function neverGoesBack(found: Findings, id: string, ops: readonly Op[]): void {
  const byAsking = [...ops].sort((a, b) => a.askedAt - b.askedAt);
  const byEnd = [...ops].sort((a, b) => a.overAt - b.overAt);
  let [next, endReported, attemptReported] = [0, false, 0];
  for (const op of byAsking) {
    for (let known = byEnd[next]; known !== undefined && known.overAt < op.askedAt; known = byEnd[++next]) {
      endReported ||= known.reported !== 'active';
      attemptReported = Math.max(attemptReported, known.attempt ?? 0);
    }
    const isBack = (endReported && op.reported === 'active') || (op.attempt ?? attemptReported) < attemptReported;
    const text = () =>
      `${id} is ${op.reported} at attempt ${op.attempt} at instance-${op.instance}, after ${endReported ? 'an end' : `attempt ${attemptReported}`} was reported`;
    found.holds(!isBack, op.overAt, text, op.workload);
  }
}

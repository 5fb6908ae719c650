/**
 * Push jobs from the outside: each node has one end, the end of the job agrees with its nodes, no
 * job fails because an instance did, nothing starts below a quorum, no agent process runs a command
 * twice, and no server is kept. docs/design.md I9.
 */
import { Findings } from '../findings.ts';
import type { Fault, StoredPushJob } from '../history.ts';
import { groupBy, type World } from '../world.ts';
import { CLOCKS_MS } from './tasks.ts';

const UNENDED = ['new', 'ready', 'running'];

export function pushJobsEnd(world: World): Findings {
  const found = new Findings('push jobs end as their nodes do', 'jobs');
  const asked = new Set(world.ops.flatMap(({ op, job }) => (op === 'push-abort' && job !== undefined ? [job] : [])));
  const known = new Set(world.evidence.stored.pushJobs.map(({ id }) => id));
  for (const { op, job, status, overAt } of world.ops)
    if (op === 'push-get' && job !== undefined)
      found.holds(known.has(job) && status !== 404, overAt, () => `push job ${job} was accepted and is not there`);
  for (const job of world.evidence.stored.pushJobs) {
    const at = world.fromWall(job.createdAt);
    const text = (what: string) => () => `push job ${job.id} ${what}`;
    found.holds(job.state === 'ended', at, text(`is still ${job.state}`));
    for (const { server, state, ends, tasks, isBusy } of job.nodes) {
      found.holds(!UNENDED.includes(state), at, text(`has ended, and its node ${server} is ${state}`));
      found.holds(tasks <= 1, at, text(`has ${tasks} tasks for ${server}`));
      found.holds(ends === tasks, at, text(`has ${ends} ends of its task for ${server}`));
      found.holds(!isBusy, at, text(`still has ${server}`));
      if (state === 'succeeded') found.holds(tasks === 1, at, text(`has succeeded on ${server} without a task`));
      if (job.outcome === 'quorum_failed')
        found.holds(tasks === 0, at, text(`failed its quorum, and has a task for ${server}`));
    }
    const to = world.fromWall(job.endedAt ?? job.createdAt);
    const isCaused = hasCause(job, world.faultsIn(at - CLOCKS_MS, to), asked.has(job.id));
    if (!isCaused && world.slackMs(at, to) === undefined) found.void(at);
    else found.holds(isCaused, at, text(`is ${job.outcome}, which nothing caused: ${statesOf(job)}`));
  }
  return found;
}

export function pushCommandsRunOnce(world: World): Findings {
  const found = new Findings('an agent runs the command of a push job once', 'jobs');
  const lines = groupBy(world.evidence.pushEffects, ({ job, agentPid }) => `push job ${job} in agent ${agentPid}`);
  for (const [what, runs] of lines) {
    const at = world.fromUptime(runs.at(-1)?.uptime ?? 0);
    found.holds(runs.length === 1, at, () => `${what} began ${runs.length} times`);
  }
  for (const { id, endedAt, nodes } of world.evidence.stored.pushJobs) {
    const over = endedAt === null ? Number.POSITIVE_INFINITY : world.fromWall(endedAt);
    // An agent that was frozen or cut off then had perhaps received the order, and learns of the
    // end later.
    const mayNotKnow = world
      .faultsIn(over, over)
      .some(({ servers }) => nodes.some(({ server }) => servers.includes(server)));
    for (const { job, uptime } of world.evidence.pushEffects) {
      const at = world.fromUptime(uptime);
      if (job !== id) continue;
      if (mayNotKnow) found.void(at);
      else
        found.holds(at <= over + CLOCKS_MS, at, () => `push job ${id} began a command ${at - over} ms after its end`);
    }
  }
  return found;
}

const statesOf = ({ nodes }: StoredPushJob): string => nodes.map(({ state }) => state).join(', ');

/**
 * Whether something caused the job's end and those of its nodes. That one instance died is not a
 * cause.
 */
function hasCause({ outcome, nodes }: StoredPushJob, faults: readonly Fault[], isAborted: boolean): boolean {
  if (outcome === 'aborted' && isAborted) return true;
  const instances = new Set(faults.map((fault) => (isOfInstance(fault) ? fault.instance : undefined)));
  if (instances.has(undefined) || instances.size > 1) return outcome !== 'aborted';
  // A server may be in rehab for the job before this one, and one whose instance dies may vote too
  // late.
  const lost = instances.size === 0 ? ['crashed', 'failed', 'unavailable', 'was_ready'] : ['crashed', 'failed'];
  return outcome === 'complete' && !nodes.some(({ state }) => lost.includes(state));
}

const isOfInstance = ({ part, servers }: Fault): boolean => part === 'instance' && servers.length === 0;

/**
 * The status is true within its bounds, and after every fault the zone recovers. docs/design.md I1,
 * I2, I6.
 */

import { Findings } from '../findings.ts';
import { type Fault, WORKLOADS } from '../history.ts';
import { groupBy, type World } from '../world.ts';
import { CLOCKS_MS } from './tasks.ts';

/** A change is seen when it is committed, which is later than its time. */
const COMMITTED_WITHIN_MS = 1_500;
/**
 * A process that was kept from running later than this after a bound was not late because of it.
 */
const LATE_MS = 6_000;
/** How long after its end a fault may have effects. */
const SETTLES_WITHIN_MS = 60_000;

/**
 * Violations are found in the recorded changes only, so that each counts once, and one that no list
 * showed counts as well. A list without an unknown server shows that all were running.
 */
export function liveServersAreNeverUnknown(world: World): Findings {
  const found = new Findings('a live server is never unknown', 'status');
  const isOfACrowd = new Set(world.faults.flatMap(({ crowd = [] }) => crowd));
  for (const { server, status, reason, since } of world.evidence.stored.statuses) {
    if (status !== 'unknown' || isOfACrowd.has(server)) continue;
    const at = world.fromWall(since);
    const text = () => `${server} became unknown (${reason}) although its agent and its connection had no fault`;
    found.holds(world.excuseOf(server, at - CLOCKS_MS, at + CLOCKS_MS) !== undefined, at, text);
  }
  for (const { op, status, unknown = [], count = 0, overAt } of world.ops)
    if (op === 'servers' && status === 200 && count > 0 && unknown.length === 0) found.holds(true, overAt, () => '');
  return found;
}

export function deadServersBecomeUnknown(world: World): Findings {
  const found = new Findings('a dead server becomes unknown in time', 'status');
  for (const fault of world.faults)
    for (const server of fault.dead?.servers ?? []) checkDead(world, found, { fault, server });
  return found;
}

function checkDead(world: World, found: Findings, { fault, server }: { fault: Fault; server: string }): void {
  const { from, to, dead } = fault;
  const slack = world.slackMs(from, Math.min(to, from + (dead?.withinMs ?? 0) + LATE_MS));
  const bound = (dead?.withinMs ?? 0) + (slack ?? 0);
  const changes = world.evidence.stored.statuses.filter((change) => change.server === server);
  const tookMs = changes
    .filter(({ status }) => status === 'unknown')
    .map(({ since }) => world.fromWall(since) - from)
    .find((ms) => ms > -CLOCKS_MS && ms <= bound);
  const wasUnknown = changes.findLast(({ since }) => world.fromWall(since) <= from - CLOCKS_MS)?.status === 'unknown';
  const isAlone = world.faults.every((other) => other === fault || other.from > to || (other.settledAt ?? to) < from);
  const isExcused = slack === undefined || to - from < bound || !isAlone || world.wasDeferring(from, from + bound);
  if (tookMs === undefined && (wasUnknown || isExcused)) return found.void(from);
  found.holds(
    tookMs !== undefined,
    from,
    () => `${server} was not unknown ${Math.round(bound)} ms after its agent was gone (${fault.name})`,
  );
}

/** The status that any instance answers was true at some moment of the request. */
export function statusIsAsRecorded(world: World): Findings {
  const found = new Findings('the status shown is the one recorded', 'status');
  const changes = groupBy(
    world.evidence.stored.statuses.map(({ server, status, since }) => ({ server, status, at: world.fromWall(since) })),
    ({ server }) => server,
  );
  const plan = world.entries('plan')[0];
  const servers = [...(plan?.agents ?? []), ...(plan?.simulated ?? [])];
  for (const op of world.ops) {
    if (op.op === 'create' && op.code === 'ServerNotRunning') {
      const isTrue = hadStatus(changes.get(op.server ?? '') ?? [], { reported: 'unknown', ...op });
      found.holds(
        isTrue,
        op.overAt,
        () => `a task for ${op.server} was refused as not running, but it was running`,
        op.workload,
      );
    }
    if (op.op !== 'servers' || op.status !== 200) continue;
    const unknown = new Set(op.unknown);
    const isWhole = op.count === servers.length;
    found.holds(isWhole, op.overAt, () => `instance-${op.instance} lists ${op.count} of ${servers.length} servers`);
    const wrong = servers.filter((server) => {
      const reported = unknown.has(server) ? 'unknown' : 'running';
      return !hadStatus(changes.get(server) ?? [], { reported, ...op });
    });
    if (
      wrong.length > 0 &&
      world.faultsIn(op.askedAt - COMMITTED_WITHIN_MS, op.overAt).some(({ part }) => part === 'postgres')
    )
      found.void(op.overAt);
    else
      found.holds(
        wrong.length === 0,
        op.overAt,
        () => `instance-${op.instance} shows a wrong status of ${wrong.join()}`,
      );
  }
  return found;
}

function hadStatus(
  changes: readonly { status: string; at: number }[],
  { reported, askedAt, overAt }: { reported: string; askedAt: number; overAt: number },
): boolean {
  const [from, to] = [askedAt - COMMITTED_WITHIN_MS, overAt + CLOCKS_MS];
  let before = 'unknown';
  for (const { status, at } of changes) {
    if (at > to) break;
    if (at >= from && (status === reported || before === reported)) return true;
    before = status;
  }
  return before === reported;
}

export function zoneRecovers(world: World): Findings {
  const found = new Findings('the zone recovers from faults', 'status');
  for (const { name, to, settledAt, lacking = [] } of world.faults) {
    const tookMs = (settledAt ?? Number.POSITIVE_INFINITY) - to;
    for (const workload of WORKLOADS) {
      const text = () => `after "${name}" these did not continue: ${lacking.join(', ')}`;
      found.holds(!lacking.includes(workload), settledAt ?? to, text, workload);
    }
    const slack = world.slackMs(to, settledAt ?? to + SETTLES_WITHIN_MS);
    if (slack === undefined && tookMs > SETTLES_WITHIN_MS) found.void(to);
    else
      found.holds(
        tookMs <= SETTLES_WITHIN_MS + (slack ?? 0),
        to,
        () => `after "${name}" the zone did not recover: ${lacking.join(', ')}`,
      );
  }
  return found;
}

export function epochsOnlyRise(world: World): Findings {
  const found = new Findings('epochs only rise', 'status');
  const seen = new Map<string, number>();
  for (const { at, rows } of world.entries('roster')) {
    for (const { server, epoch } of rows) {
      const before = seen.get(server) ?? 0;
      found.holds(epoch >= before, at, () => `the epoch of ${server} fell from ${before} to ${epoch}`);
      seen.set(server, epoch);
    }
  }
  return found;
}

export function noProcessExits(world: World): Findings {
  const found = new Findings('no process ends without a fault', 'status');
  for (const { at, name, exitCode } of world.entries('exited'))
    found.holds(false, at, () => `${name} ended with ${exitCode}`);
  for (const { to } of world.faults) found.holds(true, to, () => '');
  return found;
}

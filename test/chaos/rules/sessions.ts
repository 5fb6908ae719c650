/**
 * What happens to sessions when other agents arrive, and when their instance is frozen.
 * docs/design.md, laws 5 and 11.
 */

import { Findings } from '../findings.ts';
import type { Fault } from '../history.ts';
import type { World } from '../world.ts';
import { CLOCKS_MS } from './tasks.ts';

/** The share of the connected agents. */
const LOST_SHARE = 0.01;

/**
 * No existing session is lost to arriving agents, and hardly any admitted agent loses its session.
 */
export function arrivalsTakeNoSession(world: World): Findings {
  const found = new Findings('arriving agents take no session from others', 'status');
  const [plan] = world.entries('plan');
  for (const fault of world.faults) {
    if (fault.crowd === undefined) continue;
    const lost = lostIn(world, fault);
    const isStarved = world.slackMs(fault.from, fault.settledAt ?? fault.to) === undefined;
    if (isStarved || !isAlone(world, fault)) {
      found.void(fault.from);
      continue;
    }
    for (const server of [...(plan?.agents ?? []), ...(plan?.simulated ?? [])])
      if (!fault.servers.includes(server))
        found.holds(!lost.has(server), fault.from, () => `${server} lost its session: ${fault.name}`);
    if (fault.part !== 'crowd') continue;
    const crowd = fault.crowd.filter((server) => lost.has(server));
    const text = () => `${crowd.length} of ${fault.crowd?.length} that had arrived lost their session again`;
    found.holds(crowd.length <= LOST_SHARE * fault.crowd.length, fault.from, text);
  }
  return found;
}

/** Other instances accept the agents of a frozen instance before it continues. */
export function serversLeaveAFrozenInstance(world: World): Findings {
  const found = new Findings('servers leave a frozen instance', 'status');
  for (const fault of world.faults) {
    const { moves, from, to } = fault;
    for (const server of moves?.servers ?? []) {
      const withinMs = moves?.withinMs ?? 0;
      const slack = world.slackMs(from, Math.min(to, from + withinMs));
      const tookMs = movedAfter(world, fault, server);
      const isConclusive = slack !== undefined && to - from >= withinMs + slack && isAlone(world, fault);
      if (tookMs > withinMs + (slack ?? 0) && !isConclusive) found.void(from);
      else
        found.holds(
          tookMs <= withinMs + (slack ?? 0),
          from,
          () => `${server} was not taken over ${Math.round(withinMs + (slack ?? 0))} ms after "${fault.name}" began`,
        );
    }
  }
  return found;
}

/** The time until the roster showed another instance's session. */
function movedAfter(world: World, { from }: Fault, server: string): number {
  let owner: string | null | undefined;
  for (const { at, rows } of world.entries('roster')) {
    const row = rows.find((each) => each.server === server);
    if (row === undefined) continue;
    if (at > from && owner !== undefined && row.owner !== owner) return at - from;
    owner = row.owner;
  }
  return Number.POSITIVE_INFINITY;
}

function lostIn(world: World, { from, to, settledAt = to }: Fault): Set<string> {
  const changes = world.evidence.stored.statuses.filter(({ status, since }) => {
    const at = world.fromWall(since);
    return status === 'unknown' && at > from + CLOCKS_MS && at < settledAt - CLOCKS_MS;
  });
  return new Set(changes.map(({ server }) => server));
}

function isAlone(world: World, { from, to, settledAt = to }: Fault): boolean {
  return world.faultsIn(from, settledAt).length === 1;
}

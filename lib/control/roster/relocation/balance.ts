/**
 * How instances even out after one has joined: which instance sheds agents, how many, and to which
 * other one. Pure; balancer.ts calls it once a second. docs/design/roster.md, "Balance".
 */
export interface InstanceAgents {
  run: string;
  agents: number;
}

/**
 * An instance sheds agents only above this multiple of its share plus the slack; a smaller
 * difference is not worth a move. The slack is SLACK agents, or a tenth of the share if that is
 * less, so that a new instance in a small zone receives agents, too.
 */
const SHARE = 1.1;
const SLACK = 10;
const SLACK_SHARE = 0.1;
/** The share of its agents that an instance sheds in one second. */
const SHED_SHARE = 0.01;

/**
 * How many of its agents the instance with `run` sheds in this second, and to which other instance.
 * Only one sheds at a time: the most loaded; among equals, the one whose run sorts first.
 */
export function decideSurplus(
  run: string,
  loads: readonly InstanceAgents[],
): { agents: number; to: InstanceAgents } | undefined {
  const mine = loads.find((load) => load.run === run);
  const others = loads.filter((load) => load.run !== run);
  const least = others.reduce<InstanceAgents | undefined>(
    (least, load) => (least && least.agents <= load.agents ? least : load),
    undefined,
  );
  if (mine === undefined || least === undefined || others.some((other) => comesBefore(other, mine))) return undefined;
  const mean = loads.reduce((sum, { agents }) => sum + agents, 0) / loads.length;
  const surplus = mine.agents - Math.ceil(mean * SHARE + Math.min(SLACK, mean * SLACK_SHARE));
  if (surplus <= 0) return undefined;
  return { agents: Math.min(surplus, Math.max(1, Math.floor(mine.agents * SHED_SHARE))), to: least };
}

function comesBefore(one: InstanceAgents, other: InstanceAgents): boolean {
  return one.agents > other.agents || (one.agents === other.agents && one.run < other.run);
}

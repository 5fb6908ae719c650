/**
 * How instances even out after one has come: who sheds agents, how many, and to whom. Pure; asked once a second by
 * balancer.ts. docs/design.md section 5, "Evening out".
 */
export interface Load {
  run: string;
  agents: number;
}

/** Above its share by so much, an instance sheds: what is within is not worth anybody's move. */
const SHARE = 1.1;
const SLACK = 10;
/** Of what it holds, in a second. */
const SHED_SHARE = 0.01;

/**
 * How many of its agents the instance of `run` sheds in this second, and to which of the others. One sheds at a time: the
 * most loaded, of equals the one whose run comes first.
 */
export function surplusOf(run: string, loads: readonly Load[]): { agents: number; to: Load } | undefined {
  const mine = loads.find((load) => load.run === run);
  const others = loads.filter((load) => load.run !== run);
  const least = others.reduce<Load | undefined>(
    (found, load) => (found && found.agents <= load.agents ? found : load),
    undefined,
  );
  if (mine === undefined || least === undefined || others.some((other) => comesBefore(other, mine))) return undefined;
  const mean = loads.reduce((sum, { agents }) => sum + agents, 0) / loads.length;
  const surplus = mine.agents - Math.ceil(mean * SHARE + SLACK);
  if (surplus <= 0) return undefined;
  return { agents: Math.min(surplus, Math.max(1, Math.floor(mine.agents * SHED_SHARE))), to: least };
}

function comesBefore(one: Load, other: Load): boolean {
  return one.agents > other.agents || (one.agents === other.agents && one.run < other.run);
}

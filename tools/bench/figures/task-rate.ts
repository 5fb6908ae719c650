/**
 * How many tasks a zone accepts, carries out and answers per second, with 64 in flight at three
 * instances, compared with the database alone when Debian's pgbench sends it the same statements.
 * The two take turns, so that both run under the same conditions.
 */
import { BenchCaller } from '../caller.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { prepareFloor } from '../floor-database.ts';
import { runLanes, takeTurns } from '../lanes.ts';
import { median } from '../statistics.ts';
import { prepareTaskLife, taskLifeScript } from '../task-life.ts';
import { runTask } from '../tasks.ts';
import type { Zone } from '../zone.ts';

export const taskRate: Figure = {
  name: 'task-rate',
  says: 'tasks per second, 64 in flight at three instances, compared with their statements in pgbench',
  seconds: 45,
  measure,
};

export const IN_FLIGHT = 64;
export const SERVERS = 100;

async function measure(context: BenchContext): Promise<readonly Result[]> {
  const { isQuick, startZone } = context;
  const times = isQuick ? { rounds: 1, seconds: 1 } : { rounds: 3, seconds: 5 };
  const zone = await startZone();
  await zone.addFleet({ agents: SERVERS });
  await zone.untilKnown(SERVERS);
  await using floor = await prepareFloor(context, {
    clients: IN_FLIGHT,
    script: await taskLifeScript(),
    prepare: (database) => prepareTaskLife(database, IN_FLIGHT),
  });
  using caller = new BenchCaller();
  const runOne = await loadOf(zone);
  const own = (seconds: number) => {
    let begun = 0;
    return runLanes(IN_FLIGHT, seconds, () => runOne(caller, begun++));
  };
  const { rates, floors } = await takeTurns(times, own, floor);
  const whole = { what: 'tasks per second, 64 in flight, three instances', value: median(rates), unit: '/s' };
  const notes = [
    `nop by POST and wait, on ${SERVERS} servers of one fleet; median of ${times.rounds} × ${times.seconds} s`,
  ];
  if (floor.reason !== undefined) return [{ ...whole, notes: [...notes, floor.reason] }];
  const of = 'create, claim, record by pgbench';
  return [{ ...whole, floor: { of, value: median(floors) }, limit: { on: 'ratio', atLeast: 0.3 }, notes }];
}

/** Posts at each instance in turn, and waits at the next one. */
export async function loadOf(zone: Zone) {
  const rows = await zone.sql<{ uuid: string }>('select server_uuid as uuid from cnapi_roster_authority');
  const pick = <Item>(items: readonly Item[], turn: number) => items[turn % items.length] as Item;
  return (caller: BenchCaller, turn: number) => {
    const postUrl = pick(zone.instances, turn).url;
    const waitUrl = pick(zone.instances, turn + 1).url;
    return runTask(caller, { postUrl, waitUrl, serverUuid: pick(rows, turn).uuid });
  };
}

/**
 * How often locks change hands per second, in one queue and over a thousand, with the holder and
 * the next ticket at different instances; compared with the database alone when Debian's pgbench
 * sends it the same statements.
 */
import { BenchCaller } from '../caller.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { prepareFloor } from '../floor-database.ts';
import { runLanes, takeTurns } from '../lanes.ts';
import { median } from '../statistics.ts';
import { ticketLifeScript } from '../ticket-life.ts';
import { createTicket, releaseTicket, waitForTicket } from '../tickets.ts';
import type { Zone } from '../zone.ts';

export const ticketRate: Figure = {
  name: 'ticket-rate',
  says: 'ticket hand-overs per second, in one queue and over 1,000, compared with their statements in pgbench',
  seconds: 75,
  measure,
};

interface Load {
  what: string;
  floorOf: string;
  note: string;
  /** Number of pgbench's clients; each does one thing at a time. */
  clients: number;
  script: Promise<string>;
  handOvers(zone: Zone, caller: BenchCaller, seconds: number): Promise<number>;
}

const IN_ONE_QUEUE = 64;
const LANES = 50;
const QUEUES_A_LANE = 20;

const loads: Load[] = [
  {
    what: 'ticket hand-overs per second, one queue',
    floorOf: 'create, look, release by pgbench, one client',
    note: `${IN_ONE_QUEUE} callers that each create a ticket, wait for it and release it; one after the other, as a lock has it`,
    clients: 1,
    script: ticketLifeScript({ queues: 1, depth: IN_ONE_QUEUE }),
    handOvers: (zone, caller, seconds) =>
      runLanes(IN_ONE_QUEUE, seconds, (lane, turn) => takeTurn(zone, caller, lane + turn)),
  },
  {
    what: 'ticket hand-overs per second, 1,000 queues',
    floorOf: `create, look, release by pgbench, ${LANES} clients`,
    note: `${LANES} in flight, each over ${QUEUES_A_LANE} queues in turn: a ticket joins, is waited for, and its holder is released`,
    clients: LANES,
    script: ticketLifeScript({ queues: QUEUES_A_LANE, depth: 1 }),
    handOvers: manyQueues,
  },
];

async function measure(context: BenchContext): Promise<readonly Result[]> {
  const zone = await context.startZone();
  const results: Result[] = [];
  for (const load of loads) results.push(await measureLoad(load, zone, context));
  return results;
}

async function measureLoad(load: Load, zone: Zone, context: BenchContext): Promise<Result> {
  const times = context.isQuick ? { rounds: 1, seconds: 1 } : { rounds: 3, seconds: 5 };
  await using floor = await prepareFloor(context, { clients: load.clients, script: await load.script });
  using caller = new BenchCaller();
  const { rates, floors } = await takeTurns(times, (seconds) => load.handOvers(zone, caller, seconds), floor);
  const whole = { what: load.what, value: median(rates), unit: '/s' };
  const notes = [load.note];
  if (floor.reason !== undefined) return { ...whole, notes: [...notes, floor.reason] };
  return { ...whole, floor: { of: load.floorOf, value: median(floors) }, limit: { on: 'ratio', atLeast: 0.3 }, notes };
}

async function takeTurn(zone: Zone, caller: BenchCaller, turn: number): Promise<void> {
  const ticket = await createTicket(caller, urlAt(zone, turn), 'one');
  await waitForTicket(caller, urlAt(zone, turn + 1), ticket);
  await releaseTicket(caller, urlAt(zone, turn + 2), ticket);
}

async function manyQueues(zone: Zone, caller: BenchCaller, seconds: number): Promise<number> {
  const holders = new Map<string, string>();
  const rate = await runLanes(LANES, seconds, async (lane, turn) => {
    const queue = `${lane}-${turn % QUEUES_A_LANE}`;
    const next = await createTicket(caller, urlAt(zone, turn), queue);
    const holder = holders.get(queue);
    const waited = waitForTicket(caller, urlAt(zone, turn + 1), next);
    if (holder !== undefined) await releaseTicket(caller, urlAt(zone, turn + 2), holder);
    await waited;
    holders.set(queue, next);
  });
  await Promise.all(Array.from(holders.values(), (holder, turn) => releaseTicket(caller, urlAt(zone, turn), holder)));
  return rate;
}

const urlAt = ({ instances }: Zone, turn: number): string => instances[turn % instances.length]?.url ?? '';

/**
 * How long the next ticket of a queue waits after its holder releases the lock: released on A, wait
 * answered on C.
 */
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { BenchCaller } from '../caller.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { summarize } from '../statistics.ts';
import { createTicket, releaseTicket, waitForTicket } from '../tickets.ts';

export const ticketTrip: Figure = {
  name: 'ticket-trip',
  says: 'from the release of a ticket at one instance to the answer of the next wait at another one',
  seconds: 30,
  isOnFloors: true,
  measure,
};

/**
 * Enough requests for the wait to have begun, and for both instances to be as active as in the
 * floor.
 */
const QUESTIONS_BEFORE = 4;

async function measure({ isQuick, startZone, floors }: BenchContext): Promise<readonly Result[]> {
  const zone = await startZone();
  const [A, B, C] = zone.instances.map(({ url }) => url);
  if (A === undefined || B === undefined || C === undefined) throw new Error('the trip needs three instances');
  using caller = new BenchCaller();
  const samples: number[] = [];
  let holder = await createTicket(caller, A, 'trip');
  const [warmUp, trips] = isQuick ? [20, 50] : [200, 1_000];
  for (let trip = 0; trip < warmUp + trips; trip++) {
    const next = await createTicket(caller, B, 'trip');
    const waited = waitForTicket(caller, C, next).then(() => clock.now());
    for (let each = 0; each < QUESTIONS_BEFORE; each++) {
      await Promise.all([caller.get(`${A}/tickets/${next}`), caller.get(`${C}/tickets/${next}`)]);
    }
    const startedAt = clock.now();
    const released = releaseTicket(caller, A, holder);
    const tookMs = (await waited) - startedAt;
    await released;
    if (trip >= warmUp) samples.push(tookMs);
    holder = next;
  }
  const took = summarize(samples);
  const floor = (pace: 'busy' | 'rested') => 2 * floors.N[pace].median + floors.C[pace].median + floors.H[pace].median;
  return [
    {
      what: 'ticket released on A → wait answered on C, p50',
      value: took.median,
      unit: 'ms',
      floor: { of: '2N + C + H', value: floor('busy') },
      limit: { on: 'ratio', atMost: 2 },
      notes: [
        `p90 ${took.p90.toFixed(2)}, p99 ${took.p99.toFixed(2)} ms; ${took.samples} hand-overs`,
        `beside the floor of parts that have rested (${floor('rested').toFixed(2)} ms) ${(took.median / floor('rested')).toFixed(2)} ×`,
      ],
    },
  ];
}

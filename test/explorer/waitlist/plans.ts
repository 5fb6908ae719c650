/** The waitlist's worlds, and their deliberate defects. */
import { type BrokenWorld, type Plan, planOf } from '../plan.ts';
import { advance, type Queue } from './model.ts';
import { type Rules, rules, type WaitlistBounds, waitlistWorld } from './world.ts';

const hints: WaitlistBounds = { name: 'hints are lost', callers: 2, faults: { lostHint: 2 } };
const dying: WaitlistBounds = { name: 'holders die', callers: 2, faults: { die: 2, timeUp: 1 } };
const three: WaitlistBounds = { name: 'three tickets', callers: 3, faults: {} };
const deleted: WaitlistBounds = {
  name: 'tickets are deleted',
  callers: 2,
  faults: { delete: 1, deleteAll: 1, lostHint: 1 },
};
const renewed: WaitlistBounds = { name: 'tickets are renewed', callers: 2, faults: { timeUp: 2, renew: 1 } };

const MAX_STATES = 100_000;
const MAX_DEEP_STATES = 3_000_000;

export const waitlistPlans: Plan[] = [hints, dying, three, deleted, renewed].map((bounds) =>
  planOf(waitlistWorld(bounds), MAX_STATES),
);

export const deepWaitlistPlans: Plan[] = [
  { name: 'three tickets, holders die', callers: 3, faults: { die: 1, timeUp: 1 } },
  { name: 'three tickets, some are deleted', callers: 3, faults: { delete: 1, lostHint: 1 } },
].map((bounds) => planOf(waitlistWorld(bounds), MAX_DEEP_STATES));

const broken = (defect: string, bounds: WaitlistBounds, change: Partial<Rules>, complaint: RegExp): BrokenWorld => ({
  defect,
  run: () => planOf(waitlistWorld(bounds, { ...rules, ...change }), MAX_STATES).explore(),
  complaint,
});

/** The waiting tickets in reverse order. */
function lastFirst(queue: Queue): Queue {
  const turned = (one: Queue): Queue => ({
    ...one,
    tickets: one.tickets.map((ticket) => ({ ...ticket, place: -ticket.place })),
  });
  return turned(advance(turned(queue)));
}

export const brokenWaitlists: BrokenWorld[] = [
  broken('a release does not activate the next ticket', hints, { advance: (queue) => queue }, /none is active/),
  broken('the newest ticket is the next to become active', three, { advance: lastFirst }, /in the order/),
  broken(
    'the next ticket is activated while another one is active',
    { ...three, faults: { delete: 1 } },
    {
      advance: (queue) => {
        const head = queue.tickets.find(({ status }) => status === 'queued');
        if (head === undefined) return advance(queue);
        const tickets = queue.tickets.map((one) => (one === head ? { ...one, status: 'active' as const } : one));
        return { ...queue, tickets };
      },
    },
    /are active/,
  ),
  broken(
    'a wait reads only after a hint, and nothing polls',
    hints,
    { readsAtFirst: false, pollsSlowly: false },
    /no end/,
  ),
  broken('only hints are used after the first read', hints, { pollsSlowly: false }, /no end/),
];

/** The worlds of instances that watch agents and each other, and their deliberate defects. */
import { type BrokenWorld, type Plan, planOf } from '../plan.ts';
import { type Rules, rules, type WatchingBounds, watchingWorld } from './world.ts';

const agent: WatchingBounds = { name: 'an agent becomes silent', faults: { die: 1, stall: 3, outage: 1 } };
const still: WatchingBounds = { name: 'an instance is stalled for a while', faults: { stall: 6 } };
const outage: WatchingBounds = { name: 'the database is unreachable', faults: { outage: 6 } };
const isolated: WatchingBounds = { name: 'an instance has no database', faults: { isolated: 6 } };
const crash: WatchingBounds = { name: 'an instance dies, an agent with it', faults: { crash: 1, die: 1 } };
const both: WatchingBounds = {
  name: 'an instance dies, the other is stalled',
  faults: { crash: 1, stall: 3, outage: 1 },
};

const MAX_STATES = 100_000;
const MAX_DEEP_STATES = 3_000_000;

export const watchingPlans: Plan[] = [agent, still, outage, isolated, crash, both].map((bounds) =>
  planOf(watchingWorld(bounds), MAX_STATES),
);

export const deepWatchingPlans: Plan[] = [
  { name: 'an instance dies, the rest is unwell', faults: { crash: 1, die: 1, stall: 4, outage: 4, isolated: 4 } },
].map((bounds) => planOf(watchingWorld(bounds), MAX_DEEP_STATES));

const broken = (defect: string, bounds: WatchingBounds, change: Partial<Rules>, complaint: RegExp): BrokenWorld => ({
  defect,
  run: () => planOf(watchingWorld(bounds, { ...rules, ...change }), MAX_STATES).explore(),
  complaint,
});

export const brokenWatching: BrokenWorld[] = [
  broken(
    "time in which an instance was stalled counts as its agent's silence",
    still,
    { skipsLateTicks: false },
    /counts as silent/,
  ),
  broken('a failed read keeps the observations from before it', outage, { startsAnew: false }, /declared dead/),
  broken('a lease is a tick too short', isolated, { leaseMs: 3 }, /declared dead/),
  broken('ownerless rows become unknown at once', crash, { graceMs: 0 }, /ownerless after/),
  broken('silence is never detected', agent, { countTick: () => 'nothing' }, /I1|no end/),
];

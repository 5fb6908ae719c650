/** The worlds of instances that leave, and their deliberate defects. */
import { stepDrain } from '../../../lib/control/roster/relocation/drain.ts';
import { type BrokenWorld, type Plan, planOf } from '../plan.ts';
import { type LeavingBounds, leavingWorld, type Rules, rules } from './world.ts';

const one: LeavingBounds = { name: 'an instance leaves', agents: 2, faults: { drain: 1, lostAnswer: 1, caller: 2 } };
const both: LeavingBounds = {
  name: 'both are asked to leave',
  agents: 1,
  faults: { drain: 2, lostAnswer: 1, caller: 1 },
};

const MAX_STATES = 100_000;

export const leavingPlans: Plan[] = [one, both].map((bounds) => planOf(leavingWorld(bounds), MAX_STATES));

const broken = (defect: string, bounds: LeavingBounds, change: Partial<Rules>, complaint: RegExp): BrokenWorld => ({
  defect,
  run: () => planOf(leavingWorld(bounds, { ...rules, ...change }), MAX_STATES).explore(),
  complaint,
});

export const brokenLeaving: BrokenWorld[] = [
  broken(
    'the last instance may leave too',
    both,
    {
      drainRun: (runs, run) => ({
        runs: runs.map((other) => (other.run === run ? { ...other, isDraining: true } : other)),
        answer: 'draining',
      }),
    },
    /no instance stays/,
  ),
  broken(
    'waits are never ended',
    one,
    {
      stepDrain: (state, event, now, times) =>
        stepDrain(state, event, now, { ...times, drainWaitsMs: times.drainWaitsMs + 60_000 }),
    },
    /has not left/,
  ),
];

/** Rows of the table: duties. */
import type { DutySettlement } from '../../lib/control/duty/duty.ts';
import {
  type ClaimedDuty,
  claimDuties,
  deleteEndedDuties,
  readDutyLoad,
  readHeldDuties,
  type SettledDuties,
  type SettlementRow,
  settleDuties,
} from '../../lib/control/duty/duty-store.ts';
import { createDuties } from '../support/create-duties.ts';
import { type CallOf, type DutyKind, reads, type Statement, some, writes } from './statement.ts';

/** The kind of all duties in these tests. */
export const KIND = 'lab';

const claim = (by: 'me' | 'other'): CallOf<[string, { kinds: string[]; limit: number }], ClaimedDuty[]> => ({
  args: (world) => [world[by].run, { kinds: [KIND], limit: 100 }],
  exclusive: (claimed) => claimed.map(({ id, generation }) => `generation ${generation} of duty ${id}`),
  weight: 20,
});

const settle = (kind: DutyKind, settlement: DutySettlement): CallOf<[string, SettlementRow[]], SettledDuties> => ({
  args(world) {
    const duties = some(world.inOrder(world.duties(kind)));
    const pauseMs = settlement.kind === 'hand-over' && settlement.hasFailed ? 1_000 : 0;
    const run = duties?.[0]?.run;
    return duties && run !== undefined
      ? [run, duties.filter((duty) => duty.run === run).map((duty) => ({ ...duty, settlement, pauseMs }))]
      : undefined;
  },
  intents: (run, settlements) =>
    settlements.map(({ id, generation }) => ({ kind: 'settlement', subject: id, run, number: generation })),
  exclusive: ({ settled }, _, settlements) =>
    settlements
      .filter(({ id }) => settled.has(id))
      .map(({ id, generation }) => `the settlement of generation ${generation} of duty ${id}`),
});

export const dutyStatements: readonly Statement[] = [
  writes(createDuties, {
    'new ones': { args: (world) => [KIND, [world.uuid(), world.uuid()]] },
    'that exist': {
      args(world) {
        const ids = some(world.inOrder(world.duties('waiting')).map(({ id }) => id));
        return ids && [KIND, ids];
      },
    },
  }),
  writes(claimDuties, { 'by me': claim('me'), 'by another': claim('other') }),
  writes(settleDuties, {
    'ends of mine': settle('held', { kind: 'end' }),
    'hand-overs of mine': settle('held', { kind: 'hand-over', hasFailed: false }),
    'failures of mine': settle('held', { kind: 'hand-over', hasFailed: true }),
    'ends of a dead run': settle('left', { kind: 'end' }),
  }),
  writes(deleteEndedDuties, { 'older than a day': { args: () => [1, 100] } }),
  reads(readDutyLoad, () => [[KIND]]),
  reads(readHeldDuties, ({ me }) => [me.run]),
];

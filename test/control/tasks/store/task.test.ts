import t from 'tap';
import {
  decideAtInventory,
  type InheritedTask,
  type InventoryDecision,
  type KnownTask,
  MAX_ATTEMPTS,
  taskEnds,
} from '../../../../lib/control/tasks/store/task.ts';

t.test('an inventory decides whether a claimed task continues, fails or is tried again', async (t) => {
  const again: InventoryDecision = { kind: 'next-attempt', uncertain: false };
  const againUncertain: InventoryDecision = { kind: 'next-attempt', uncertain: true };
  const fail = (error: (typeof taskEnds)[keyof typeof taskEnds]): InventoryDecision => ({ kind: 'fail', error });
  const accepted: KnownTask = { attempt: 2, state: 'accepted' };
  const table: [string, { journal: string; known?: KnownTask } & Partial<InheritedTask>, InventoryDecision][] = [
    ['known and accepted: continues', { journal: 'same', known: accepted }, { kind: 'goes-on', started: false }],
    [
      'known and running: continues',
      { journal: 'same', known: { attempt: 2, state: 'running' } },
      { kind: 'goes-on', started: true },
    ],
    [
      'known and ended: continues until the end arrives',
      { journal: 'same', known: { attempt: 2, state: 'ended' } },
      { kind: 'goes-on', started: true },
    ],
    ['known in another journal: continues', { journal: 'other', known: accepted }, { kind: 'goes-on', started: false }],
    [
      'known and to be cancelled: continues until it has ended',
      { journal: 'same', known: accepted, cancelRequested: true },
      { kind: 'goes-on', started: false },
    ],
    ['not known, same journal: it never started', { journal: 'same' }, again],
    ['not known, same journal, idempotent: it never started', { journal: 'same', idempotent: true }, again],
    [
      'only an earlier attempt known: this one never started',
      { journal: 'same', known: { attempt: 1, state: 'running' } },
      again,
    ],
    [
      'not known, same journal, to be cancelled: ends',
      { journal: 'same', cancelRequested: true },
      fail(taskEnds.cancelled),
    ],
    [
      'accepted and no longer known, same journal: rolled back, the outcome is unknown',
      { journal: 'same', wasAccepted: true },
      fail(taskEnds.outcomeUnknown),
    ],
    [
      'accepted and no longer known, same journal, idempotent: may run again',
      { journal: 'same', wasAccepted: true, idempotent: true },
      againUncertain,
    ],
    [
      'accepted, and only an earlier attempt known: the journal is complete',
      { journal: 'same', wasAccepted: true, known: { attempt: 1, state: 'running' } },
      again,
    ],
    [
      'held as accepted, though it had started: rolled back, the outcome is unknown',
      { journal: 'same', wasAccepted: true, hasStarted: true, known: { attempt: 2, state: 'accepted', held: true } },
      fail(taskEnds.outcomeUnknown),
    ],
    [
      'held as accepted, though it had started, idempotent: may run again',
      {
        ...{ journal: 'same', wasAccepted: true, hasStarted: true, idempotent: true },
        known: { attempt: 2, state: 'accepted', held: true },
      },
      { kind: 'goes-on', started: false },
    ],
    [
      'held as accepted, and never started: continues',
      { journal: 'same', wasAccepted: true, known: { attempt: 2, state: 'accepted', held: true } },
      { kind: 'goes-on', started: false },
    ],
    [
      'accepted at the inventory, and started since: continues',
      { journal: 'same', wasAccepted: true, hasStarted: true, known: { attempt: 2, state: 'accepted' } },
      { kind: 'goes-on', started: false },
    ],
    ['journal lost: the outcome is unknown', { journal: 'other' }, fail(taskEnds.outcomeUnknown)],
    ['journal lost, idempotent: may run again', { journal: 'other', idempotent: true }, againUncertain],
    [
      'journal lost, idempotent, to be cancelled: ends',
      { journal: 'other', idempotent: true, cancelRequested: true },
      fail(taskEnds.cancelledUncertain),
    ],
    ['not taken in the last attempt', { journal: 'same', attempt: MAX_ATTEMPTS - 1 }, again],
    ['not taken in one attempt too many', { journal: 'same', attempt: MAX_ATTEMPTS }, fail(taskEnds.notTaken)],
    [
      'not taken after it may have run',
      { journal: 'same', attempt: MAX_ATTEMPTS, uncertain: true },
      fail(taskEnds.notTakenAgain),
    ],
    [
      'lost once too often',
      { journal: 'other', attempt: MAX_ATTEMPTS, idempotent: true },
      fail(taskEnds.notTakenAgain),
    ],
    [
      'cancelled when it may have run before',
      { journal: 'same', uncertain: true, cancelRequested: true },
      fail(taskEnds.cancelledUncertain),
    ],
  ];
  const inherited = {
    id: 'task-1',
    attempt: 2,
    journalId: 'same',
    idempotent: false,
    uncertain: false,
    wasAccepted: false,
    hasStarted: false,
  };
  for (const [name, { journal, known, ...fields }, expected] of table) {
    const task = { ...inherited, cancelRequested: false, ...fields };
    t.same(decideAtInventory(task, { journalId: journal, known }), expected, name);
  }
});

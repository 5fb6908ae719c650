import t from 'tap';
import {
  decideAtInventory,
  type InheritedTask,
  type InventoryDecision,
  type KnownTask,
  MAX_ATTEMPTS,
  type TaskRow,
  taskEnds,
  toServerHistoryEntry,
  toTask,
} from '../../../../lib/control/tasks/record/task.ts';
import { matchLists } from '../../../support/match-lists.ts';

const at = (second: number): Date => new Date(Date.UTC(2030, 0, 1, 0, 0, second));

function row(fields: Partial<TaskRow> = {}): TaskRow {
  return {
    id: 'task-1',
    server_uuid: 'server-1',
    name: 'nop',
    params: { sleep: 1 },
    timeout_ms: 1000,
    idempotent: true,
    req_id: null,
    ticket_uuid: null,
    state: 'queued',
    outcome: null,
    attempt: 0,
    created_at: at(0),
    accepted_at: null,
    started_at: null,
    cancel_requested_at: null,
    ended_at: null,
    progress: null,
    progress_at: null,
    result: null,
    error: null,
    ...fields,
  };
}

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
  };
  for (const [name, { journal, known, ...fields }, expected] of table) {
    const task = { ...inherited, cancelRequested: false, ...fields };
    t.same(decideAtInventory(task, { journalId: journal, known }), expected, name);
  }
});

t.test('an unfinished task is served as active, with its progress', async (t) => {
  matchLists(t, toTask(row()), { id: 'task-1', task: 'nop', server_uuid: 'server-1', status: 'active', history: [] });
  const running = row({
    state: 'claimed',
    attempt: 1,
    req_id: 'req-1',
    accepted_at: at(1),
    started_at: at(2),
    progress: { value: 40 },
    progress_at: at(3),
  });
  t.same(toTask(running), {
    id: 'task-1',
    req_id: 'req-1',
    task: 'nop',
    server_uuid: 'server-1',
    status: 'active',
    timestamp: '2030-01-01T00:00:00.000Z',
    history: [
      { name: 'accepted', timestamp: '2030-01-01T00:00:01.000Z', event: {} },
      { name: 'started', timestamp: '2030-01-01T00:00:02.000Z', event: {} },
      { name: 'progress', timestamp: '2030-01-01T00:00:03.000Z', event: { value: 40 } },
    ],
    params: { sleep: 1 },
    attempt: 1,
    timeout_ms: 1000,
    idempotent: true,
    cancel_requested: false,
    started_at: '2030-01-01T00:00:02.000Z',
  });
});

t.test("the history of an ended task is the one that Triton's CNAPI keeps", async (t) => {
  const timestamp = '2030-01-01T00:00:09.000Z';
  const ended = { state: 'ended', started_at: at(2), ended_at: at(9) } as const;
  t.same(toTask(row({ ...ended, outcome: 'complete', result: { vm: 1 } })).history, [
    { name: 'finish', timestamp, event: { vm: 1 } },
  ]);
  t.same(toTask(row({ ...ended, outcome: 'complete' })).history, [{ name: 'finish', timestamp, event: {} }]);
  t.same(toTask(row({ ...ended, outcome: 'failure', error: { code: 'Oops', message: 'broke' } })).history, [
    { name: 'error', timestamp, event: { error: { message: 'broke', code: 'Oops' } } },
    { name: 'finish', timestamp, event: {} },
  ]);
});

t.test('a cancelled end without a request to cancel means that the task passed its timeout', async (t) => {
  const error = { code: 'Cancelled', message: 'cancelled' };
  const ended = row({ state: 'ended', outcome: 'failure', ended_at: at(9), error });
  t.match(toTask(ended).history[0], { event: { error: { code: 'TaskTimeout' } } });
  t.match(toTask({ ...ended, cancel_requested_at: at(8) }).history[0], { event: { error: { code: 'Cancelled' } } });
});

t.test("a server's history has the keys of Triton's agent", async (t) => {
  t.match(toServerHistoryEntry(row()), { status: 'active', started_at: '2030-01-01T00:00:00.000Z', errorCount: 0 });
  const error = { code: 'Oops', message: 'broke' };
  matchLists(
    t,
    toServerHistoryEntry(row({ state: 'ended', outcome: 'failure', started_at: at(1), ended_at: at(2), error })),
    {
      status: 'failed',
      started_at: '2030-01-01T00:00:01.000Z',
      finished_at: '2030-01-01T00:00:02.000Z',
      errorCount: 1,
      messages: ['broke'],
    },
  );
  t.match(toServerHistoryEntry(row({ state: 'ended', outcome: 'complete', ended_at: at(2) })), { status: 'finished' });
});

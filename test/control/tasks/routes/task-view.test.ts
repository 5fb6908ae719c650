import t from 'tap';
import { toTask, toTaskHistoryEntry } from '../../../../lib/control/tasks/routes/task-view.ts';
import type { TaskRow } from '../../../../lib/control/tasks/store/task.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { queuedRow } from '../support/queued-row.ts';

const operator = { name: 'alice', roles: ['operator'] } as const;
const reader = { name: 'bob', roles: ['reader'] } as const;

const at = (second: number): Date => new Date(Date.UTC(2030, 0, 1, 0, 0, second));

const row = (fields: Partial<TaskRow> = {}): TaskRow =>
  queuedRow({ params: { sleep: 1 }, idempotent: true, created_at: at(0), ...fields });

t.test('an unfinished task is served as active, with its progress', async (t) => {
  matchLists(t, toTask(row(), operator), {
    id: 'task-1',
    task: 'nop',
    server_uuid: 'server-1',
    status: 'active',
    history: [],
  });
  const running = row({
    state: 'claimed',
    attempt: 1,
    req_id: 'req-1',
    accepted_at: at(1),
    started_at: at(2),
    progress: { value: 40 },
    progress_at: at(3),
  });
  t.same(toTask(running, operator), {
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
  t.same(toTask(row({ ...ended, outcome: 'complete', result: { vm: 1 } }), operator).history, [
    { name: 'finish', timestamp, event: { vm: 1 } },
  ]);
  t.same(toTask(row({ ...ended, outcome: 'complete' }), operator).history, [{ name: 'finish', timestamp, event: {} }]);
  t.same(toTask(row({ ...ended, outcome: 'failure', error: { code: 'Oops', message: 'broke' } }), operator).history, [
    { name: 'error', timestamp, event: { error: { message: 'broke', code: 'Oops' } } },
    { name: 'finish', timestamp, event: {} },
  ]);
});

t.test('a cancelled end without a request to cancel means that the task passed its timeout', async (t) => {
  const error = { code: 'Cancelled', message: 'cancelled' };
  const ended = row({ state: 'ended', outcome: 'failure', ended_at: at(9), error });
  t.match(toTask(ended, operator).history[0], { event: { error: { code: 'TaskTimeout' } } });
  t.match(toTask({ ...ended, cancel_requested_at: at(8) }, operator).history[0], {
    event: { error: { code: 'Cancelled' } },
  });
});

t.test("a server's history has the keys of Triton's agent", async (t) => {
  t.match(toTaskHistoryEntry(row(), operator), {
    status: 'active',
    started_at: '2030-01-01T00:00:00.000Z',
    errorCount: 0,
  });
  const error = { code: 'Oops', message: 'broke' };
  matchLists(
    t,
    toTaskHistoryEntry(
      row({ state: 'ended', outcome: 'failure', started_at: at(1), ended_at: at(2), error }),
      operator,
    ),
    {
      status: 'failed',
      started_at: '2030-01-01T00:00:01.000Z',
      finished_at: '2030-01-01T00:00:02.000Z',
      errorCount: 1,
      messages: ['broke'],
    },
  );
  t.match(toTaskHistoryEntry(row({ state: 'ended', outcome: 'complete', ended_at: at(2) }), operator), {
    status: 'finished',
  });
});

t.test('a reader sees when and how a task ended, and nothing that it received or printed', async (t) => {
  const result = { exitCode: 1, stdout: 'secret' };
  const ended = row({ state: 'ended', outcome: 'complete', ended_at: at(9), result });
  matchLists(t, toTask(ended, reader), { params: {}, history: [{ event: { exitCode: 1 } }], withheld: true });
  t.notMatch(JSON.stringify([toTask(ended, reader), toTaskHistoryEntry(ended, reader)]), 'secret');
  t.same(toTaskHistoryEntry(ended, reader).params, {});
});

/** The table of tasks on terminals of different widths. */
import t from 'tap';
import { fleetColumns, taskLine } from '../../../lib/cli/tasks/task-table.ts';
import { table } from '../../../lib/cli/terminal/table.ts';

const ID = '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11';
const task = {
  id: ID,
  task: 'command_execute',
  status: 'complete',
  created: '2030-01-31T12:00:00.000Z',
  serverUuid: 'web-1',
  actor: 'me',
  summary: 'uptime',
  end: 0,
};

t.test('on a narrow terminal the id of a task is shortened, and no other column is cut', async (t) => {
  const columns = fleetColumns((uuid) => uuid);
  const [, narrow = ''] = table(columns, [task], 100);
  t.match(narrow, `command_execute  complete  0     web-1   me     ${ID.slice(0, 8)}  uptime`);
  const [, wide = ''] = table(columns, [task], 120);
  t.match(wide, `me     ${ID}  uptime`);
  const [, piped = ''] = table(columns, [task]);
  t.match(piped, `me     ${ID}  uptime`);
});

t.test('why a task failed is its status, if it was cancelled or ran out of time', async (t) => {
  const listed = { ...task, timestamp: task.created, server_uuid: task.serverUuid, attempt: 1, cancel_requested: true };
  const rows: Record<string, [entry: object, shown: object]> = {
    'cancelled, and its command ended with 0': [
      { status: 'failure', error_code: 'Cancelled', exit_code: 0 },
      { status: 'cancelled', end: 0 },
    ],
    'cancelled before it began': [
      { status: 'failure', error_code: 'Cancelled' },
      { status: 'cancelled', end: undefined },
    ],
    'out of time': [
      { status: 'failure', error_code: 'TaskTimeout', exit_code: 143 },
      { status: 'timed_out', end: 143 },
    ],
    'failed otherwise': [
      { status: 'failure', error_code: 'UnknownTask' },
      { status: 'failure', end: 'UnknownTask' },
    ],
    'ended before the cancel': [
      { status: 'complete', exit_code: 0 },
      { status: 'complete', end: 0 },
    ],
  };
  for (const [name, [entry, shown]] of Object.entries(rows))
    t.match(taskLine({ ...listed, ...entry } as Parameters<typeof taskLine>[0]), shown, name);
});

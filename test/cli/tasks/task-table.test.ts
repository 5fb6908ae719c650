/** The table of tasks on terminals of different widths. */
import t from 'tap';
import { fleetColumns } from '../../../lib/cli/tasks/task-table.ts';
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

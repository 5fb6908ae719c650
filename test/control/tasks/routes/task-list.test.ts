import t from 'tap';
import type { ListedTaskRow } from '../../../../lib/control/tasks/store/task-list-store.ts';
import type { ListedTask } from '../../../../lib/protocol/api/tasks.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { finished } from '../../http/stand-ins.ts';
import { SERVER, startApi } from '../../http/support.ts';
import { startWithTokens } from '../../http/with-tokens.ts';

const ROW: ListedTaskRow = {
  id: '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11',
  server_uuid: SERVER,
  name: 'command_execute',
  state: 'ended',
  outcome: 'complete',
  actor: 'alice',
  at: '1893456000000000',
  created_at: new Date('2030-01-01T00:00:00.000Z'),
  started_at: null,
  ended_at: null,
  attempt: 1,
  cancel_requested: false,
  error_code: null,
  summary: 'mysql --password=secret',
  exit_code: 1,
};

const TASK: ListedTask = {
  id: '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11',
  server_uuid: SERVER,
  task: 'command_execute',
  status: 'complete',
  actor: 'alice',
  timestamp: '2030-01-01T00:00:00.000Z',
  attempt: 1,
  cancel_requested: false,
  summary: 'mysql --password=secret',
  exit_code: 1,
};

t.test('GET /tasks passes on its filters and returns the position of the next page', async (t) => {
  const { call, tasks } = await startApi(t);
  const next = `1893456000000001_${TASK.id}`;
  tasks.page = { rows: [ROW], next };
  t.same((await call('GET', '/tasks')).body, { tasks: [TASK], next });
  await call(
    'GET',
    `/tasks?status=failure&name=nop&actor=bob&server_uuid=${SERVER}&since=2030-01-01&until=2030-01-02T00:00:00Z&after=${next}&limit=7`,
  );
  matchLists(t, tasks.asked, [
    { limit: 100 },
    {
      status: 'failure',
      name: 'nop',
      actor: 'bob',
      serverUuid: SERVER,
      since: '2030-01-01T00:00:00.000Z',
      until: '2030-01-02T00:00:00.000Z',
      after: { at: '1893456000000001', id: TASK.id },
      limit: 7,
    },
  ]);
});

t.test('a wrong parameter is a 400 that names it, an undeclared one a 409', async (t) => {
  const { call } = await startApi(t);
  for (const [query, field] of [
    ['status=running', 'status'],
    ['since=yesterday', 'since'],
    ['after=here', 'after'],
    ['limit=0', 'limit'],
    ['limit=1001', 'limit'],
    ['server_uuid=x', 'server_uuid'],
  ] as const) {
    const { status, body } = await call('GET', `/tasks?${query}`);
    t.equal(status, 400, query);
    t.equal(body.errors[0].field, field, query);
  }
  t.equal((await call('GET', '/tasks?offset=1')).status, 409);
});

t.test('the summary of a task is shown only to callers that may run tasks', async (t) => {
  const { call, tasks, as } = await startWithTokens(t);
  tasks.page = { rows: [ROW], next: undefined };
  const shownTo = async (role: 'reader' | 'operator' | 'admin') =>
    (await call('GET', '/tasks', undefined, (await as(role)).headers)).body.tasks[0];
  for (const role of ['operator', 'admin'] as const) t.same(await shownTo(role), TASK, role);
  const { summary: _summary, ...rest } = TASK;
  t.same(await shownTo('reader'), { ...rest, withheld: true });
  t.equal((await call('GET', '/tasks', undefined, (await as('agent')).headers)).status, 403);
});

t.test('a task records the caller that created it', async (t) => {
  const { call, tasks, addServer, as } = await startWithTokens(t);
  await addServer(SERVER);
  const { headers, name } = await as('operator');
  tasks.outcome = finished({});
  await call('POST', `/servers/${SERVER}/tasks`, { task: 'nop' }, headers);
  await call('POST', `/servers/${SERVER}/nop`, {}, headers);
  await call('POST', `/servers/${SERVER}/execute`, { script: 'true', json: true }, headers);
  t.same(
    tasks.created.map(({ actor }) => actor),
    [name, name, name],
  );
});

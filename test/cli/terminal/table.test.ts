import t from 'tap';
import { INSTANCE_COLUMNS } from '../../../lib/cli/instances/instance-columns.ts';
import { JOB_COLUMNS, NODE_COLUMNS } from '../../../lib/cli/push-jobs/job-progress.ts';
import { SCHEDULE_COLUMNS } from '../../../lib/cli/schedules/schedule-view.ts';
import { STATUS_CHANGE_COLUMNS } from '../../../lib/cli/servers/server.ts';
import { fleetColumns, TASK_COLUMNS } from '../../../lib/cli/tasks/task-table.ts';
import { displayWidth, nameValueLines, table } from '../../../lib/cli/terminal/table.ts';

const UUID = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';

t.test('colours do not count towards the width of a cell', (t) => {
  const paint = (text: string, value: string) => (value === 'unknown' ? `<${text}>` : text);
  const columns = [
    { head: 'STATUS', of: ({ status }: { status: string }) => status, paint },
    { head: 'N', of: () => 1 },
  ];
  t.strictSame(table(columns, [{ status: 'running' }, { status: 'unknown' }], 20), [
    'STATUS   N',
    'running  1',
    '<unknown>  1',
  ]);
  t.strictSame(table(columns.slice(0, 1), [{ status: 'running' }, { status: 'unknown' }])[2], '<unknown>');
  t.end();
});

t.test('a table fits the width of the terminal and keeps ids whole', (t) => {
  const columns = [
    { head: 'UUID', of: (row: Row) => row.uuid },
    { head: 'HOSTNAME', of: (row: Row) => row.hostname, shrinks: true },
    { head: 'N', of: (row: Row) => row.count, align: 'right' as const },
  ];
  interface Row {
    uuid: string;
    hostname?: string;
    count: number;
  }
  const rows = [
    { uuid: UUID, hostname: `web-\x1b[31m${'x'.repeat(80)}`, count: 7 },
    { uuid: UUID, count: 12345 },
  ];
  const fitted = table(columns, rows, 72);
  for (const line of fitted) t.ok(displayWidth(line) <= 72, line);
  t.match(fitted[1], new RegExp(`^${UUID}  web-\\\\x1b\\[31mx+…      7$`));
  t.equal(fitted[2], `${UUID}  -${' '.repeat(26)}  12345`);
  t.ok(
    table(columns, rows, 20).every((line, at) => at === 0 || line.includes(UUID)),
    'even where it does not fit',
  );
  t.ok(table(columns, rows)[1]?.includes('x'.repeat(80)), 'unlimited width without a terminal');
  const many = Array.from({ length: 300_000 }, (_, count) => ({ uuid: UUID, count }));
  t.equal(table(columns, many).length, 300_001, 'with many rows');
  t.equal(displayWidth('日本é\u0301'), 5);
  t.strictSame(
    nameValueLines([
      ['a', 1],
      ['longer', 'x'],
      ['none', undefined],
    ]),
    ['a       1', 'longer  x'],
  );
  t.end();
});

t.test('ids that commands accept by their beginnings are abbreviated where the table is too wide', (t) => {
  const columns = [
    { head: 'ID', of: ({ id }: { id: string }) => id, abbreviates: true },
    { head: 'N', of: () => 1 },
  ];
  const rows = [{ id: UUID }, { id: 'c2b8f1de-7a64-4c1f-9d0a-0123456789ab' }, { id: 'a name of 20 letters' }];
  t.strictSame(table(columns, rows, 39)[1], `${UUID}  1`);
  t.strictSame(table(columns, rows, 38), [
    'ID                    N',
    '564d5b45              1',
    'c2b8f1de              1',
    'a name of 20 letters  1',
  ]);
  const alike = [1, 2, 2].map((digit) => ({ id: `00000000-000${digit}-4c1f-9d0a-0123456789ab` }));
  t.strictSame(table(columns, alike, 15).slice(1), ['00000000-0001  1', '00000000-0002  1', '00000000-0002  1']);
  t.end();
});

t.test('the lists of jobs, their nodes and schedules fit a narrow terminal', (t) => {
  const id = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';
  const time = '2030-01-01T00:00:00.000Z';
  const job = { ...{ id, status: 'quorum_failed', quorum: 17, node_count: 20_000, counts: { succeeded: 19_000 } } };
  const jobs = [{ ...job, command: 'systemctl reload nginx', actor: 'alice of operations', created_at: time }];
  const node = { server_uuid: id, name: 'a-server-with-a-long-name', status: 'unavailable', updated_at: time };
  const nodes = [{ ...node, task_id: id, exit_code: 137, reason: 'busy', message: 'with another push job' }];
  const schedule = { id, status: 'active', cron: '30 2 * * mon-fri', time_zone: 'Europe/Berlin', next_at: time };
  const schedules = [{ ...schedule, last_at: time, last_outcome: 'started', job: { command: 'apt-get -q update' } }];
  for (const width of [60, 80, 100]) {
    const lines = [
      ...table(JOB_COLUMNS, jobs as never, width),
      ...table(NODE_COLUMNS, nodes as never, width),
      ...table(SCHEDULE_COLUMNS, schedules as never, width),
    ];
    for (const line of lines) t.ok(line.length <= width, `${width}: ${line}`);
  }
  t.match(table(JOB_COLUMNS, jobs as never, 120)[0], /ACTOR/);
  t.match(table(JOB_COLUMNS, jobs as never, 60)[1], /564d5b45 +quorum_failed .*system/);
  for (const width of [40, 60, 80])
    t.match(table(JOB_COLUMNS, jobs as never, width)[0], / OK /, `${width}: how many succeeded is shown`);
  t.end();
});

t.test('instances, the history of a server and tasks fit a narrow terminal', (t) => {
  const time = '2030-01-01T00:00:00.000Z';
  const instance = { uuid: UUID, url: 'https://cnapi0.eu-west-1.example.com', state: 'draining', pid: 4_194_304 };
  const instances = [{ ...instance, agents: 2_500, lease_age_ms: 900, version: '0.2.0', started: time }];
  const change = {
    since: time,
    status: 'unknown',
    previous: 'running',
    reason: 'the agent was silent',
    cnapi_uuid: UUID,
  };
  const task = {
    id: UUID,
    task: 'command_execute',
    status: 'complete',
    created: time,
    actor: 'alice',
    serverUuid: UUID,
  };
  const tasks = [{ ...task, summary: 'systemctl reload nginx', end: 'TaskTimeout' }];
  for (const width of [60, 80, 100]) {
    const lines = [
      ...table(INSTANCE_COLUMNS, instances as never, width),
      ...table(STATUS_CHANGE_COLUMNS, [change] as never, width),
      ...table(TASK_COLUMNS, tasks, width),
      ...table(
        fleetColumns(() => 'a-server-with-a-long-name'),
        tasks,
        width,
      ),
    ];
    for (const line of lines) t.ok(line.length <= width, `${width}: ${line}`);
  }
  t.match(table(INSTANCE_COLUMNS, instances as never, 120)[0], /BEAT +VERSION +STARTED/);
  t.match(table(INSTANCE_COLUMNS, instances as never, 60)[1], /^564d5b45 +https:\/\/cnapi0.* draining +4194304 +2500$/);
  t.match(table(TASK_COLUMNS, tasks, 60)[1], /^command_exe… +complete +TaskTimeout +564d5b45 +systemctl/);
  t.end();
});

t.test('the reason of a node is shown before its task and its time', (t) => {
  const time = '2030-01-01T00:00:00.000Z';
  const node = { server_uuid: UUID, name: 'web-1', status: 'nacked', updated_at: time };
  const busy = { ...node, reason: 'busy', busy_with: UUID };
  const reason = 'busy: with push job 564d5b45';
  const shown = (rows: object[], width?: number) => table(NODE_COLUMNS, rows as never, width);
  t.strictSame(shown([busy], 60), ['NODE NAME  STATUS  EXIT  WHY', `web-1      nacked  -     ${reason}`]);
  const failed = { ...busy, task_id: UUID };
  t.match(shown([failed], 60).join('\n'), new RegExp(`STATUS +EXIT +WHY\n.*${reason}$`));
  t.match(shown([failed], 80).join('\n'), new RegExp(`LAST UPDATED +EXIT +WHY\n.*${reason}$`));
  t.match(shown([failed], 90)[0], /LAST UPDATED +EXIT +TASK +WHY$/);
  t.notMatch(shown([busy], 200)[0], /TASK/, 'no column without a value');
  t.match(shown([busy])[0], /TASK/, 'programs get the same columns each time');
  t.end();
});

t.test('columns that can be spared are left out from the last one on, and only if the table is too wide', (t) => {
  const columns = [
    { head: 'A', of: () => 'aaaaaaaaaa' },
    { head: 'B', of: () => 'bbbbbbbbbb', optional: true },
    { head: 'C', of: () => 'cccccccccc', optional: true },
  ];
  const headAt = (width?: number) => table(columns, [{}], width)[0]?.split(/ +/).join('');
  t.same([headAt(), headAt(34), headAt(33), headAt(21), headAt(5)], ['ABC', 'ABC', 'AB', 'A', 'A']);
  t.end();
});

/** The parts of the command line that need no fleet. */
import t from 'tap';
import { complete, isPlainWord } from '../../lib/cli/complete.ts';
import { parseDuration, parseTime, shortDuration, shortTime } from '../../lib/cli/duration.ts';
import { screenOf } from '../../lib/cli/fleet-view.ts';
import { createProgram } from '../../lib/cli/program.ts';
import { ignoredIn } from '../../lib/cli/signals.ts';
import { facts, table, widthOf } from '../../lib/cli/table.ts';
import { errorOf, exitCodeOf, hasSucceeded } from '../../lib/cli/task-end.ts';
import { visible, visibleLines } from '../../lib/cli/visible.ts';
import { matches, parseWhere } from '../../lib/cli/where.ts';

const UUID = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';

t.test('text from elsewhere cannot send escapes to the terminal', (t) => {
  const hostile = 'a\x1b]0;title\x07b\x9b31m\u202ec\r\n\0';
  t.equal(visible(hostile), 'a\\x1b]0;title\\x07b\\x9b31m\\u202ec\\r\\n\\x00');
  t.equal(visibleLines('one\r\ntwo\tx\rthree\x1b[2J\n'), 'one\ntwo\tx\\rthree\\x1b[2J\n');
  t.equal(visible('grüße 日本'), 'grüße 日本');
  t.end();
});

t.test('no line of the watch screen is wider than the terminal', (t) => {
  const instance = { uuid: UUID, url: `http://${'x'.repeat(90)}:8080`, agents: 5, lease_age_ms: 10 };
  const view = {
    instances: [
      {
        ...instance,
        run: UUID,
        pid: 1,
        version: '0.2.0',
        state: 'live' as const,
        admission: 'open' as const,
        started: '2030-01-01T00:00:00Z',
      },
    ],
    total: 2,
    counts: { running: 1, unknown: 1 },
    away: [{ uuid: UUID, hostname: `日本\x1b[2J${'y'.repeat(90)}`, status: 'unknown' as const }],
    queues: [],
    tasks: [
      {
        id: UUID,
        task: 'z'.repeat(90),
        server_uuid: UUID,
        status: 'active' as const,
        attempt: 1,
        cancel_requested: false,
        timestamp: '2030-01-01T00:00:00Z',
        actor: 'a',
        summary: `\x1b[2J${'w'.repeat(90)}`,
      },
    ],
    hasMoreTasks: true,
    trouble: `no answer\x1b]0;title\x07 ${'!'.repeat(90)}`,
  };
  const paint = { bold: (text: string) => text, red: (text: string) => text };
  for (const width of [20, 72, 200])
    for (const line of screenOf(view, { width, time: '2030-01-01T00:00:00.000Z', paint })) {
      t.ok(widthOf(line) <= width, line);
      t.notMatch(line, '\x1b');
    }
  t.end();
});

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
  for (const line of fitted) t.ok(widthOf(line) <= 72, line);
  t.match(fitted[1], new RegExp(`^${UUID}  web-\\\\x1b\\[31mx+…      7$`));
  t.equal(fitted[2], `${UUID}  -${' '.repeat(26)}  12345`);
  t.ok(
    table(columns, rows, 20).every((line, at) => at === 0 || line.includes(UUID)),
    'even where it does not fit',
  );
  t.ok(table(columns, rows)[1]?.includes('x'.repeat(80)), 'unlimited width without a terminal');
  const many = Array.from({ length: 300_000 }, (_, count) => ({ uuid: UUID, count }));
  t.equal(table(columns, many).length, 300_001, 'with many rows');
  t.equal(widthOf('日本é\u0301'), 5);
  t.strictSame(
    facts([
      ['a', 1],
      ['longer', 'x'],
      ['none', undefined],
    ]),
    ['a       1', 'longer  x'],
  );
  t.end();
});

t.test('durations and times are parsed and formatted', (t) => {
  for (const [text, ms] of Object.entries({
    '90s': 90_000,
    '10m': 600_000,
    '1h30m': 5_400_000,
    '500ms': 500,
    '1.5': 1500,
    '2d': 172_800_000,
  }))
    t.equal(parseDuration(text, '--wait'), ms, text);
  for (const bad of ['', 'soon', '-1s', '1w', '1s ', '1e9'])
    t.throws(() => parseDuration(bad, '--wait'), { message: /^--wait .* is not a duration such as/ }, `"${bad}"`);
  for (const [ms, text] of [
    [900, '0.9s'],
    [65_000, '1m 5s'],
    [3_700_000, '1h 1m'],
    [90_000_000, '1d 1h'],
  ] as const)
    t.equal(shortDuration(ms), text);
  t.equal(shortTime('2030-01-31T12:00:00.123Z'), '2030-01-31 12:00:00Z');
  t.equal(shortTime(null), '-');
  t.equal(parseTime('2h', '--since', 7_200_000), '1970-01-01T00:00:00.000Z');
  t.equal(parseTime('2030-01-31T12:00:00+01:00', '--since', 0), '2030-01-31T11:00:00.000Z');
  t.throws(() => parseTime('yesterday', '--since', 0), { message: /neither a time/ });
  t.end();
});

t.test('--where conditions match servers', (t) => {
  const server = { hostname: 'web-1.example', setup: true, traits: { rack: 'r1', list: [1] }, comments: '' };
  const rows: [string, boolean][] = [
    ['hostname=web-*', true],
    ['hostname=web', false],
    ['hostname=WEB-*', false],
    ['hostname!=db-*', true],
    ['hostname=web-1?example', false],
    ['setup=true', true],
    ['traits.rack=r1', true],
    ['traits.none=', true],
    ['traits.rack.deeper=', true],
    ['comments=*', true],
    ['constructor=*Object*', false],
    ['traits.list=[1]', true],
  ];
  for (const [text, expected] of rows) t.equal(matches(server, parseWhere(text)), expected, text);
  for (const bad of ['hostname', '=x', '1a=b', '']) t.throws(() => parseWhere(bad), { message: /is not NAME=PATTERN/ });
  t.end();
});

t.test('success, error text and exit code of a task are derived from its end', (t) => {
  t.ok(hasSucceeded({ status: 'complete', result: { exitCode: 0 } }));
  t.ok(hasSucceeded({ status: 'complete' }), 'a task that is no command');
  const failures: [object, string][] = [
    [{ status: 'complete', result: { exitCode: 3 } }, 'exit code 3'],
    [{ status: 'complete', result: { exitCode: null, signal: 'SIGSEGV' } }, 'ended by SIGSEGV'],
    [{ status: 'failure', error: { code: 'TaskTimeout', message: 'too long' } }, 'too long (TaskTimeout)'],
  ];
  for (const [end, why] of failures) t.equal(errorOf(end as Record<string, unknown>), why);
  const codes: [object | undefined, number | undefined][] = [
    [{ exitCode: 3, signal: null }, 3],
    [{ exitCode: null, signal: 'SIGKILL' }, 137],
    [{ exitCode: null, signal: 'SIGTERM' }, 143],
    [{ exitCode: null, signal: 'constructor' }, 128],
    [{}, undefined],
    [undefined, undefined],
  ];
  for (const [result, code] of codes) t.equal(exitCodeOf(result), code, JSON.stringify(result));
  t.end();
});

t.test('the signals ignored at start are read from the mask', (t) => {
  const rows: [string | undefined, string[]][] = [
    ['00000001', ['SIGHUP']],
    ['00000002', ['SIGINT']],
    ['00004003', ['SIGINT', 'SIGTERM', 'SIGHUP']],
    ['ffffbffc', []],
    ['', []],
    ['nonsense', []],
    [undefined, []],
  ];
  for (const [mask, signals] of rows) t.strictSame(ignoredIn(mask), signals, mask ?? 'no mask');
  t.end();
});

t.test('completion offers what may come next on a command line', (t) => {
  const program = createProgram({ action: () => async () => undefined });
  const rows: [string[], unknown][] = [
    [['serve'], { words: ['servers', 'server'] }],
    [['servers', '--st'], { words: ['--status'] }],
    [['servers', '--status', ''], { words: ['running', 'unknown'] }],
    [['exec', 'web-1', ''], { wanted: 'server' }],
    [['--url', 'http://x', 'exec', ''], { wanted: 'server' }],
    [['exec', 'web-1', '--', ''], { words: [] }],
    [['exec', '--timeout', ''], { words: [] }],
    [['task', ''], { wanted: 'task' }],
    [['task', 'x', ''], { words: [] }],
    [['lock', 'web-1', ''], { words: [] }],
    [['drain', ''], { wanted: 'instance' }],
    [['token', ''], { words: ['create', 'list', 'revoke', 'header', 'help'] }],
    [['token', 'create', 'x', '--role', 'o'], { words: ['operator'] }],
    [['token', 'revoke', ''], { wanted: 'token' }],
    [['audit', '--server', ''], { wanted: 'server' }],
    [['completion', ''], { words: ['bash', 'zsh', 'fish'] }],
    [['__c'], { words: [] }],
  ];
  for (const [words, expected] of rows) t.strictSame(complete(program, words), expected, words.join(' '));
  for (const bad of ['$(reboot)', 'a;b', '-rf', 'a b', '`x`', '', 'a\nb']) t.notOk(isPlainWord(bad), bad);
  t.end();
});

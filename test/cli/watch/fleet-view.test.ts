import t from 'tap';
import { displayWidth } from '../../../lib/cli/terminal/table.ts';
import { countByStatus, renderScreen } from '../../../lib/cli/watch/fleet-view.ts';
import type { NamedServer } from '../../../lib/protocol/api/servers.ts';

const UUID = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';

const view = {
  instances: [
    {
      ...{ uuid: UUID, url: `http://${'x'.repeat(90)}:8080`, agents: 5, lease_age_ms: 10, run: UUID, pid: 1 },
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
};
const errorMessage = `no answer\x1b]0;title\x07 ${'!'.repeat(90)}`;
const time = '2030-01-01T00:00:20.000Z';
const silence = { forMs: 3_900, answeredAt: '2030-01-01T00:00:16.100Z' };
const same = (text: string) => text;
const paint = { bold: same, red: same, dim: same };

t.test('no line of the watch screen is wider than the terminal', (t) => {
  for (const width of [20, 72, 200])
    for (const how of [{}, { silence }])
      for (const line of renderScreen({ ...view, errorMessage }, { width, time, paint, ...how })) {
        t.ok(displayWidth(line) <= width, line);
        t.notMatch(line, '\x1b');
      }
  t.end();
});

t.test('a screen that may no longer be true says since when, is dim, and puts its states in the past', (t) => {
  const dim = (text: string) => `<${text}>`;
  const fresh = renderScreen(view, { width: 100, time, paint: { ...paint, dim } }).join('\n');
  t.match(fresh, /^servers {2}2, 1 running[\s\S]* live [\s\S]* unknown$/m);
  t.notMatch(fresh, /was |</);
  const [head, blank, notice, gap, ...rows] = renderScreen(view, {
    width: 100,
    time,
    silence,
    paint: { ...paint, dim },
  });
  t.match(head, /2030-01-01 00:00:20Z$/);
  t.same([blank, notice, gap], ['', 'no answer for 3s; what follows is from 2030-01-01 00:00:16Z', '']);
  t.match(rows.join('\n'), /^<servers {2}was 2, 1 running[\s\S]* was live [\s\S]* was unknown>$/m);
  t.same(
    rows.filter((row) => row !== '' && !/^<.*>$/.test(row)),
    [],
  );
  t.end();
});

t.test('the reason why there is no update is shown whole, on as many lines as it needs', (t) => {
  const errorMessage = `No instance answered GET /instances: ${'http://127.0.0.1:8080: connection refused; '.repeat(3)}end`;
  const lines = renderScreen(
    { ...view, errorMessage },
    { width: 60, time, silence: { ...silence, forMs: 12_000 }, paint },
  );
  const notice = lines.slice(2, lines.indexOf('', 2)).join(' ');
  t.equal(notice, `no update for 12s; what follows is from 2030-01-01 00:00:16Z ${errorMessage}`);
  t.end();
});

t.test('before the first answer nothing is shown as if it were known', (t) => {
  const [, , ...lines] = renderScreen(view, {
    width: 60,
    time,
    silence: { forMs: 2_000, answeredAt: undefined },
    paint,
  });
  t.same(lines, ['no answer for 2s']);
  t.end();
});

t.test('servers are counted by their status, whatever its name', (t) => {
  const statuses = ['running', 'constructor', 'running', 'constructor', 'unknown'];
  const servers = statuses.map((status) => ({ uuid: UUID, hostname: 'x', status }) as NamedServer);
  t.same(countByStatus(servers), { running: 2, constructor: 2, unknown: 1 });
  t.end();
});

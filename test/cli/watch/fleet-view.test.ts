import t from 'tap';
import { displayWidth } from '../../../lib/cli/terminal/table.ts';
import { countByStatus, screenOf } from '../../../lib/cli/watch/fleet-view.ts';
import type { NamedServer } from '../../../lib/protocol/api/servers.ts';

const UUID = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';

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
      t.ok(displayWidth(line) <= width, line);
      t.notMatch(line, '\x1b');
    }
  t.end();
});

t.test('servers are counted by their status, whatever its name', (t) => {
  const statuses = ['running', 'constructor', 'running', 'constructor', 'unknown'];
  const servers = statuses.map((status) => ({ uuid: UUID, hostname: 'x', status }) as NamedServer);
  t.same(countByStatus(servers), { running: 2, constructor: 2, unknown: 1 });
  t.end();
});

import t from 'tap';
import { failedServers } from '../../../lib/cli/agents/failed-servers.ts';
import type { CnapiClient } from '../../../lib/client/client.ts';
import type { ListedTask } from '../../../lib/protocol/api/tasks.ts';

type Query = Parameters<CnapiClient['tasks']>[0];

const failure = (version: string) =>
  ({ summary: `package_file=https://h/cn-agent-${version}.tar package_name=cn-agent` }) as ListedTask;

t.test('the failures of each server are found however many tasks other servers have', async (t) => {
  // A page without tasks may have a next one: a bounded number of rows is read for each.
  const pages: Record<string, ListedTask[][]> = {
    failed: [[], [failure('1.0.0')], [failure('2.0.0')]],
    'failed-another': [[failure('1.0.0')]],
    'never-failed': [[]],
  };
  const asked: Query[] = [];
  const client = {
    async tasks(query: Query = {}) {
      asked.push(query);
      const at = Number(query.after ?? 0);
      const all = pages[String(query.server_uuid)] ?? [];
      return { tasks: all[at] ?? [], ...(at + 1 < all.length && { next: `${at + 1}` }) };
    },
  };
  const servers = Object.keys(pages).map((uuid) => ({ uuid }));
  t.strictSame(await failedServers(client, servers, '2.0.0'), new Set(['failed']));
  t.equal(asked.length, 5);
  for (const query of asked) t.match(query, { name: 'agent_install', status: 'failure', server_uuid: String });
});

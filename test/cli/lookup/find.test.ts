/** Servers by what people type: uuids, hostnames, and the beginnings of uuids. */
import t from 'tap';
import { findServers } from '../../../lib/cli/lookup/find.ts';
import type { CnapiClient } from '../../../lib/client/client.ts';

const [first, second, third] = [
  { uuid: 'beef0001-0000-4000-8000-000000000001', hostname: 'web-1' },
  { uuid: 'beef0002-0000-4000-8000-000000000002', hostname: 'beef0001' },
  { uuid: 'feed0003-0000-4000-8000-000000000003', hostname: 'feed' },
];
const all = [first, second, third].map((server) => ({ ...server, status: 'running' }));

const client = {
  servers: async ({ uuids, hostname }: { uuids?: string[]; hostname?: string }) =>
    all.filter((one) => uuids?.includes(one.uuid) || one.hostname === hostname),
  async *allServers() {
    yield* all;
  },
} as unknown as CnapiClient;

const found = async (...names: string[]) => (await findServers(client, names)).map(({ uuid }) => uuid);

t.test('a server is found by its uuid, its hostname, or the beginning of its uuid', async (t) => {
  t.same(await found(first.uuid, 'beef0002'), [first.uuid, second.uuid]);
  t.same(await found('web-1'), [first.uuid]);
  t.same(await found('feed'), [third.uuid], 'both say the same server');
});

t.test('a hostname that is the beginning of the uuid of another server is ambiguous', async (t) => {
  await t.rejects(found('beef0001'), { message: /beef0001.*/ });
  await t.rejects(found('beef0001'), new RegExp(second.uuid));
});

t.test('all names that were not found are named', async (t) => {
  await t.rejects(found('web-2', 'beef', 'abcd'), /no server web-2.*beef.*no server abcd/);
});

import { randomUUID } from 'node:crypto';
import t from 'tap';
import { CnapiClient } from '../../lib/client/client.ts';
import { systemRandom } from '../../lib/platform/random.ts';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { json, scripted } from './rig.ts';

t.test('allServers reads every server, also when one is removed between two pages', async (t) => {
  const uuids = Array.from({ length: 2_500 }, () => randomUUID()).toSorted();
  const [removed, ...kept] = uuids;
  let present = uuids;
  const { url, heard } = await scripted(t, (response, { path }) => {
    const query = new URL(path, 'http://localhost').searchParams;
    const after = query.get('after') ?? '';
    const from = Number(query.get('offset') ?? 0);
    const page = present.filter((uuid) => uuid > after).slice(from, from + Number(query.get('limit')));
    present = kept;
    json(
      response,
      200,
      page.map((uuid) => ({ uuid })),
    );
  });
  const client = new CnapiClient({
    discovery: { urls: [url] },
    secure: false,
    credentials: async () => ({ token: undefined, ca: undefined }),
    clock: systemClock,
    random: systemRandom,
  });
  t.teardown(() => client.close());
  const found: string[] = [];
  for await (const { uuid } of client.allServers()) found.push(uuid);
  t.same(found, [removed, ...kept]);
  t.equal(heard.length, 3);
});

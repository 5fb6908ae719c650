/** Downloads that end early, and are continued by a later attempt. */
import { randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { imageServer } from '../../support/image-server.ts';
import { SMALL, storeIn } from '../../support/image-store.ts';
import { cannotMount, mountedFolder } from '../../support/mounted-folder.ts';

t.test(
  'no file holds the query of a URL, and only a load with the same query continues',
  { skip: cannotMount() },
  async (t) => {
    const folder = await mountedFolder(t);
    const server = await imageServer(t, { body: SMALL, cutAfter: 10 });
    const { images } = await storeIn(t, folder, { urls: [server.url] });
    const uuid = randomUUID();
    const load = (query: string) => images.ensure({ uuid, url: `${server.url}?${query}` });
    await t.rejects(load('token=hunter2'), { code: 'ImageSourceFailed' });
    const files = (await readdir(folder, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
    const kept = await Promise.all(files.map(({ parentPath, name }) => readFile(join(parentPath, name), 'utf8')));
    t.equal(files.filter(({ name }) => name.startsWith(uuid)).length, 3, 'the record, the part and its note');
    t.notOk(kept.some((text) => text.includes('hunter2')));
    server.asked.length = 0;
    await t.rejects(load('token=hunter2'), { code: 'ImageSourceFailed' });
    t.equal(server.asked[0], 'bytes=50-');
    server.asked.length = 0;
    delete server.served.cutAfter;
    t.equal((await load('token=other')).state.name, 'ready');
    t.same(server.asked, ['whole']);
  },
);

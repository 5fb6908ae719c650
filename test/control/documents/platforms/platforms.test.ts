import { randomUUID } from 'node:crypto';
import t from 'tap';
import { buildBucket } from '../../../../lib/control/documents/document-bucket.ts';
import { toPlatforms } from '../../../../lib/control/documents/platforms/platforms.ts';
import { BucketStore } from '../../../../lib/platform/moray/bucket-store.ts';
import { bootPlatforms } from '../../../../lib/protocol/api/documents/platforms.ts';
import { freshZone } from '../../../support/apps.ts';

const [OLD, NEW, LINUX] = ['20200101T000000Z', '20210101T000000Z', '20220101T000000Z'];

t.test('platforms as Triton answers them', async (t) => {
  const platforms = [
    { name: LINUX, os: 'linux' },
    { name: OLD, os: 'smartos' },
    { name: 'zz-test', os: 'smartos' },
    { name: NEW, os: 'smartos' },
  ] as const;
  t.strictSame(toPlatforms([], false), {});
  t.strictSame(toPlatforms([{ name: 'test', os: 'linux' }], false), { test: {} }, 'only times have an order');
  t.strictSame(toPlatforms(platforms, false), { [OLD]: {}, [NEW]: {}, [LINUX]: { latest: true }, 'zz-test': {} });
  t.strictSame(toPlatforms(platforms, true), {
    [OLD]: { os: 'smartos' },
    [NEW]: { latest: true, os: 'smartos' },
    [LINUX]: { latest: true, os: 'linux' },
    'zz-test': { os: 'smartos' },
  });
});

t.test('what an operator declares at one instance is a platform at all', async (t) => {
  const zone = await freshZone(t);
  const [one, other] = [await zone.startApp(), await zone.startApp()];
  t.strictSame((await one.get('/platforms')).body, {});
  const { body } = await one.post<{ uuid: string }>('/boot_platforms', { name: OLD });
  await one.post('/boot_platforms', { name: NEW });
  t.strictSame((await other.get('/platforms')).body, { [OLD]: {}, [NEW]: { latest: true } });
  t.strictSame((await other.get('/platforms?os=true')).body, {
    [OLD]: { os: 'smartos' },
    [NEW]: { latest: true, os: 'smartos' },
  });
  const taken = await other.post('/boot_platforms', { name: NEW, os: 'linux' });
  t.match(taken, { status: 409, body: { code: 'UniqueAttribute' } });
  t.match(await other.post('/boot_platforms', { name: '../x' }), { status: 400 });
  const wrong = await one.get<{ errors: object[] }>('/platforms?os=maybe');
  t.equal(wrong.status, 500);
  t.same(wrong.body.errors, [{ field: 'os', code: 'Invalid', message: "Invalid value for param 'os'" }]);
  t.match(await one.get('/platforms?all=true'), { status: 409, body: { code: 'InvalidArgument' } });
  t.equal(await one.delete(`/boot_platforms/${body.uuid}`), 204);
  t.strictSame((await other.get('/platforms')).body, { [NEW]: { latest: true } });
});

t.test('there is a maximum of platforms', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const made = Array.from({ length: 200 }, (_, index) => {
    const uuid = randomUUID();
    return [uuid, { uuid, name: `p${index}`, os: 'linux', description: 'é'.repeat(500) }] as const;
  });
  await new BucketStore({ database: zone.database }).createMany(buildBucket(bootPlatforms), new Map(made));
  t.match(await app.post('/boot_platforms', { name: 'more' }), { status: 409, body: { code: 'TooManyDocuments' } });
  t.equal(Object.keys((await app.get<object>('/platforms')).body).length, 200);
});

import { randomUUID } from 'node:crypto';
import t from 'tap';
import { InvalidImageError } from '../../../lib/agent/images/image-errors.ts';
import type { Images } from '../../../lib/agent/images/images.ts';
import { imageTasks } from '../../../lib/agent/images/tasks.ts';
import type { TaskContext } from '../../../lib/agent/runner/task-definition.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { SMALL, store } from '../../support/image-store.ts';
import { cannotMount } from '../../support/mounted-folder.ts';

const uuid = randomUUID();
const image = { uuid, state: { name: 'ready' }, source: 'stream', layers: [{ digest: 'a', bytes: 5 }], usedBy: [] };

function run(
  name: keyof typeof imageTasks,
  params: object,
  images: object | undefined,
  context: Partial<TaskContext> = {},
) {
  const usual = { clock: systemClock, signal: new AbortController().signal, progress: () => undefined };
  const given = { ...usual, images: images as Images | undefined, ...context } as TaskContext;
  return imageTasks[name].run(params as Record<string, unknown>, given);
}

t.test('a load reports its progress in whole percents, and answers with the image', async (t) => {
  const reported: number[] = [];
  const images = {
    ensure: async (request: object, { onProgress }: { onProgress(bytes: number, total?: number): void }) => {
      t.same(request, { uuid, url: 'http://h/one', digest: undefined });
      for (const bytes of [1, 10, 10, 109, 1_000]) onProgress(bytes, 1_000);
      return image;
    },
  };
  const progress = (value: number) => void reported.push(value);
  const answer = await run('image_ensure_present', { image_uuid: uuid, url: 'http://h/one' }, images, { progress });
  t.match(answer, { uuid, state: 'ready', size: 5 });
  t.same(reported, [1, 10, 100]);
});

t.test('without a source a load says whether the image is there', async (t) => {
  t.match(await run('image_ensure_present', { image_uuid: uuid }, { read: () => image }), { uuid });
  const failed = { ...image, state: { name: 'failed', code: 'InvalidImage', reason: 'it is cut off' } };
  const asked = run('image_ensure_present', { image_uuid: uuid }, { read: () => failed });
  await t.rejects(asked, { code: 'ImageNotReady', message: /cut off/ });
});

t.test('the list has what an operator chooses by', async (t) => {
  const digest = `sha256:${'0'.repeat(64)}`;
  const used = { ...image, digest, lastUsedAt: 0, usedBy: ['a', 'b'], source: `http://h/${'x'.repeat(4_000)}` };
  const unused = { ...image, lastUsedAt: 1, state: { name: 'fetching' }, layers: [] };
  const state = { name: 'failed', code: 'InvalidImage', reason: `cut off${'!'.repeat(4_000)}` };
  const { images } = await run('image_list', {}, { list: () => [used, unused, { ...unused, state }] });
  t.match(images, {
    0: { uuid, state: 'ready', digest, size: 5, last_used_at: '1970-01-01T00:00:00.000Z', vms: 2 },
    1: { state: 'fetching', size: 0, vms: 0 },
    2: { state: 'failed', error: { code: 'InvalidImage', message: /^cut off!/ } },
  });
  t.ok(JSON.stringify(images).length < 2_000, 'long texts are cut');
  await t.rejects(run('image_list', {}, undefined), { code: 'NoContainers' });
});

t.test('a failure has its code, and an agent without containers says so', async (t) => {
  const images = { ensure: () => Promise.reject(new InvalidImageError('it is cut off')) };
  const wrong = run('image_ensure_present', { image_uuid: uuid, url: 'http://h/one' }, images);
  await t.rejects(wrong, { code: 'InvalidImage', message: /cut off/ });
  await t.rejects(run('image_get', { uuid }, undefined), { code: 'NoContainers' });
  await t.rejects(run('image_get', { uuid: '../x' }, undefined), { code: 'InvalidParameters' });
});

t.test('where no container can run, no image is loaded, and the reason is that', { skip: cannotMount() }, async (t) => {
  const unavailableReason = 'No container can run on this server: the program conmon is not installed';
  const { images, file } = await store(t, { unavailableReason });
  const url = await file('small', SMALL);
  const loading = run('image_ensure_present', { image_uuid: uuid, url }, images);
  await t.rejects(loading, { code: 'NoContainers', message: unavailableReason });
  t.same(images.list(), []);
});

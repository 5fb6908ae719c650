/** The tasks of images. `image_ensure_present` and `image_get` have the names of Triton's agent. */
import { z } from 'zod';
import { byteProgress, defineTask, type TaskContext, type TaskDefinitions } from '../runner/task-definition.ts';
import { TaskFailure } from '../task-failure.ts';
import type { StoredImage } from './image.ts';
import type { Images } from './images.ts';

const uuid = z.uuid().toLowerCase();
const MAX_URL_CHARS = 4_000;
const MAX_LISTED_CHARS = 400;

export const imageTasks = {
  image_ensure_present: defineTask({
    lane: 'vms',
    params: z.object({
      image_uuid: uuid,
      url: z.string().max(MAX_URL_CHARS).optional(),
      digest: z.string().max(100).optional(),
    }),
    run: ensure,
  }),
  image_list: defineTask({
    lane: 'vm-queries',
    params: z.object({}),
    run: async (_, context) => ({ images: imagesOf(context).list().map(listedImage) }),
  }),
  image_get: defineTask({
    lane: 'vm-queries',
    params: z.object({ uuid }),
    run: async (params, context) => shownImage(imagesOf(context).read(params.uuid)),
  }),
  image_delete: defineTask({
    lane: 'vms',
    params: z.object({ uuid }),
    async run(params, context) {
      await imagesOf(context).delete(params.uuid);
      return {};
    },
  }),
} satisfies TaskDefinitions;

async function ensure(
  { image_uuid, url, digest }: { image_uuid: string; url?: string | undefined; digest?: string | undefined },
  context: TaskContext,
): Promise<Record<string, unknown>> {
  const images = imagesOf(context);
  // Without a source it is only asked whether the image is there, as by callers of Triton's agent.
  if (url === undefined) return shownImage(readReady(images, image_uuid));
  const onProgress = byteProgress(context);
  return shownImage(await images.ensure({ uuid: image_uuid, url, digest }, { signal: context.signal, onProgress }));
}

function readReady(images: Images, uuid: string): StoredImage {
  const image = images.read(uuid);
  if (image.state.name === 'ready') return image;
  const reason = image.state.name === 'failed' ? `: ${image.state.reason}` : '';
  throw new TaskFailure('ImageNotReady', `Image ${uuid} is ${image.state.name}${reason}`);
}

function imagesOf({ images }: TaskContext): Images {
  if (images !== undefined) return images;
  throw new TaskFailure('NoContainers', 'This agent keeps no images: it was started without --containers');
}

function shownImage({ uuid, state, source, digest, layers, config, usedBy }: StoredImage): Record<string, unknown> {
  return {
    uuid,
    state: state.name,
    ...failureOf(state),
    source,
    ...(digest && { digest }),
    size: sizeOf(layers),
    layers,
    config,
    used_by: usedBy,
  };
}

/** Small enough for the result of a task with all images that a server may have. */
const listedImage = ({ uuid, state, source, digest, layers, lastUsedAt, usedBy }: StoredImage) => ({
  uuid,
  state: state.name,
  ...failureOf(state, MAX_LISTED_CHARS),
  source: source.slice(0, MAX_LISTED_CHARS),
  ...(digest && { digest }),
  size: sizeOf(layers),
  last_used_at: new Date(lastUsedAt).toISOString(),
  /** VMs that use it now. */
  vms: usedBy.length,
});

const failureOf = (state: StoredImage['state'], maxChars?: number) =>
  state.name === 'failed' ? { error: { code: state.code, message: state.reason.slice(0, maxChars) } } : {};

const sizeOf = (layers: StoredImage['layers']): number => layers.reduce((sum, { bytes }) => sum + bytes, 0);

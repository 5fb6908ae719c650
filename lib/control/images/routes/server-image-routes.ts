/**
 * Answers the routes of the images of a server (lib/protocol/api/images.ts) by tasks of its agent.
 */
import { z } from 'zod';
import { definedFields } from '../../../platform/defined-fields.ts';
import { listedServerImage, serverImage, serverImageContracts } from '../../../protocol/api/images.ts';
import { bind, ok, type Route, recordedInCommit } from '../../http/route.ts';
import { createRequestedTask } from '../../tasks/requests/requested-task.ts';
import { runTask } from '../../tasks/requests/run-task.ts';
import type { Tasks } from '../../tasks/tasks.ts';

export interface ServerImageRouteDeps {
  tasks: Pick<Tasks, 'create' | 'wait'>;
  /** Aborts when this instance leaves and every wait must be answered. */
  instanceLeaving: AbortSignal;
}

/** Triton's CNAPI waits for the same time. */
const GET_SECONDS = 60;
const LIST_SECONDS = 60;

const imageList = z.object({ images: z.array(listedServerImage) });

export function serverImageRoutes(deps: ServerImageRouteDeps): Route[] {
  return bind(serverImageContracts, {
    EnsureServerImage: recordedInCommit(async (context) => {
      const { image_uuid, zfs_storage_pool_name, imgapiPeers } = context.params;
      const params = {
        image_uuid,
        ...definedFields({ zfs_storage_pool_name, imgapiPeers }),
      };
      return ok({ id: await createRequestedTask(context, deps.tasks, { name: 'image_ensure_present', params }) });
    }),
    async ListServerImages(context) {
      const task = { name: 'image_list' as const, seconds: LIST_SECONDS, params: {}, result: imageList };
      return ok((await runTask(deps, context, task)).images);
    },
    async GetServerImage(context) {
      const { uuid, jobid } = context.params;
      const params = { uuid, ...definedFields({ jobid }) };
      const task = { name: 'image_get' as const, seconds: GET_SECONDS, params, result: serverImage };
      return ok(await runTask(deps, context, task));
    },
  });
}

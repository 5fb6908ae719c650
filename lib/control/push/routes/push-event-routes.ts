/** Answers the route that follows a push job (lib/protocol/api/push/events.ts). */
import { invalidParameter } from '../../../platform/errors.ts';
import { PUSH_STREAM_END, pushEventContracts } from '../../../protocol/api/push/events.ts';
import type { Actor } from '../../access/token.ts';
import { STREAM_BYTES } from '../../http/answer/event-stream.ts';
import { bind, empty, type Route, type ServerSentEvent, stream } from '../../http/route.ts';
import { toTaskEvent } from '../../tasks/routes/task-view.ts';
import type { FollowUpdate } from '../followers/node-follower.ts';
import type { PushJobs } from '../push-jobs.ts';
import { toPushJob, toPushNode } from './push-job-view.ts';

export interface PushEventRouteDeps {
  pushJobs: Pick<PushJobs, 'get'> & { followers: Pick<PushJobs['followers'], 'nodes'> };
}

export function pushEventRoutes({ pushJobs }: PushEventRouteDeps): Route[] {
  return bind(
    pushEventContracts,
    {
      async FollowPushJob({ params: { id, after }, header, signal, actor }) {
        // A browser that resumes sends the old URL with a new header.
        const position = header('Last-Event-ID') || after;
        // Read first, so a missing job is a 404 and not a stream that breaks.
        const job = await pushJobs.get(id);
        if (position === PUSH_STREAM_END) return empty(204);
        const since = momentOf(position);
        return stream(toServerSent(pushJobs.followers.nodes(job, { since, signal }), actor));
      },
    },
    { FollowPushJob: { answerBytes: STREAM_BYTES } },
  );
}

async function* toServerSent(all: AsyncIterable<FollowUpdate>, actor: Actor): AsyncGenerator<ServerSentEvent> {
  for await (const update of all) {
    const id = update.position;
    if ('job' in update) yield { id, name: 'job', data: toPushJob(update.job, actor) };
    else if ('node' in update) yield { id, name: 'node', data: toPushNode(update.node, actor) };
    else if ('task' in update) {
      const { serverUuid, task: taskId, event } = update;
      yield { id, name: 'task', data: { server_uuid: serverUuid, task_id: taskId, event: toTaskEvent(event, actor) } };
    } else yield { id };
  }
}

function momentOf(position: string | undefined): Date | undefined {
  if (position === undefined || position === '') return undefined;
  const moment = new Date(position);
  const isTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(position) && !Number.isNaN(moment.getTime());
  // `Date` takes 2030-02-30 for 2 March.
  if (isTime && moment.toISOString() === position) return moment;
  throw invalidParameter('Last-Event-ID', 'value was not the id of an event');
}

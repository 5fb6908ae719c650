/** Answers the routes of tasks (lib/protocol/api/tasks.ts). */
import { definedFields } from '../../../platform/defined-fields.ts';
import { invalidParameter } from '../../../platform/errors.ts';
import { MAX_WAIT_SECONDS } from '../../../protocol/api/contract/rules.ts';
import { MAX_EVENT_ID, TASK_PAGE, taskContracts } from '../../../protocol/api/tasks.ts';
import type { Actor } from '../../access/token.ts';
import { STREAM_BYTES } from '../../http/answer/event-stream.ts';
import { accepted, bind, empty, ok, type Route, type ServerSentEvent, stream } from '../../http/route.ts';
import { InstanceDrainingError } from '../../request-errors.ts';
import type { RecordedTaskEvent } from '../store/task.ts';
import type { Tasks } from '../tasks.ts';
import { toListedTask, toTask, toTaskEvent } from './task-view.ts';

interface TaskRouteDeps {
  tasks: Pick<Tasks, 'list' | 'get' | 'wait' | 'cancel' | 'follow'>;
  /** Aborts when this instance leaves and every wait must be answered. */
  instanceLeaving: AbortSignal;
}

export function taskRoutes({ tasks, instanceLeaving }: TaskRouteDeps): Route[] {
  return bind(
    taskContracts,
    {
      async ListTasks({ params, actor }) {
        const { server_uuid: serverUuid, id_prefix: idPrefix, limit = TASK_PAGE, ...others } = params;
        const { rows, next } = await tasks.list({ ...others, serverUuid, idPrefix, limit });
        return ok({ tasks: rows.map((row) => toListedTask(row, actor)), ...definedFields({ next }) });
      },
      GetTask: async ({ params, actor }) => ok(toTask(await tasks.get(params.taskid), actor)),
      async WaitTask({ params, signal, actor }) {
        const timeoutMs = (params.timeout ?? MAX_WAIT_SECONDS) * 1000;
        const task = await tasks.wait(params.taskid, { timeoutMs, signal, endSignal: instanceLeaving });
        // Without an outcome the time is up; a job that waits would stop waiting.
        if (task.outcome === null && instanceLeaving.aborted) throw new InstanceDrainingError();
        return ok(toTask(task, actor));
      },
      CancelTask: async ({ params, actor }) => accepted(toTask(await tasks.cancel(params.taskid), actor)),
      async FollowTask({ params, header, signal, actor }) {
        // A browser that resumes sends the old URL with a new header.
        const after = lastEventId(header('Last-Event-ID')) ?? params.after ?? 0;
        const follow = () => tasks.follow(params.taskid, after, { signal, endSignal: instanceLeaving });
        // Read first, so a missing task is a 404 and not a stream that breaks.
        const { outcome } = await tasks.get(params.taskid);
        // A browser reconnects even after the end event, and stops only at a 204.
        if (outcome !== null && after > 0 && !(await hasAny(follow()))) return empty(204);
        return stream(toServerSent(follow(), actor));
      },
    },
    { ListTasks: { answerBytes: 2 * 1024 * 1024 }, FollowTask: { answerBytes: STREAM_BYTES } },
  );
}

async function* toServerSent(events: AsyncIterable<RecordedTaskEvent>, actor: Actor): AsyncGenerator<ServerSentEvent> {
  for await (const event of events) yield { id: String(event.seq), name: event.name, data: toTaskEvent(event, actor) };
}

async function hasAny(events: AsyncIterable<unknown>): Promise<boolean> {
  for await (const _ of events) return true;
  return false;
}

function lastEventId(text: string | undefined): number | undefined {
  if (text === undefined || text === '') return undefined;
  if (/^\d{1,10}$/.test(text) && Number(text) <= MAX_EVENT_ID) return Number(text);
  throw invalidParameter('Last-Event-ID', 'value was not the id of an event');
}

/**
 * Follows a push job to its end over any number of instances: its statuses, those of its nodes, and
 * the events of their tasks, each once. One connection, however many nodes. After a break an
 * instance sends some events again; they are left out here.
 */

import { PUSH_EVENTS, type PushEvent, pushEventContracts } from '../protocol/api/push/events.ts';
import { JOB_ENDS } from '../protocol/api/push/job-schemas.ts';
import { TASK_EVENTS } from '../protocol/api/tasks.ts';
import type { FailoverClient } from './failover-client.ts';
import { follow } from './follow.ts';
import { bodySchemaOf, buildRequest, isKnown } from './request.ts';

interface FollowPushJobOptions {
  /** The stream broke off; it is resumed. */
  onBroken?: (reason: string) => void;
}

/** @throws ApiError, NoAnswerError, UnexpectedAnswerError */
export async function* followPushJob(
  http: FailoverClient,
  id: string,
  options: FollowPushJobOptions = {},
): AsyncGenerator<PushEvent> {
  const { FollowPushJob } = pushEventContracts;
  const { path } = buildRequest(FollowPushJob, { id });
  const seen = new SeenEvents();
  for await (const { id: position, name, data } of follow(http, { path, ...options })) {
    const parsed = JSON.parse(data || '{}');
    if (!isKnown(PUSH_EVENTS, name) || (name === 'task' && !isKnown(TASK_EVENTS, parsed.event?.name))) continue;
    const event = bodySchemaOf(FollowPushJob).parse({ id: position, event: name, data: parsed });
    if (!seen.isNew(event)) continue;
    yield event;
    if (event.event === 'job' && JOB_ENDS.includes(event.data.status)) return;
  }
}

class SeenEvents {
  readonly #nodes = new Map<string, string>();
  readonly #tasks = new Map<string, number>();

  isNew(event: PushEvent): boolean {
    if (event.event === 'job') return true;
    if (event.event === 'task') {
      const { task_id, event: of } = event.data;
      const isNew = of.seq > (this.#tasks.get(task_id) ?? 0);
      if (isNew) this.#tasks.set(task_id, of.seq);
      return isNew;
    }
    const { server_uuid, status, task_id } = event.data;
    const shown = `${status} ${task_id}`;
    const isNew = this.#nodes.get(server_uuid) !== shown;
    this.#nodes.set(server_uuid, shown);
    return isNew;
  }
}

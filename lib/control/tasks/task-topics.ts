/** What instances tell each other about tasks: only ids; the receiver reads the database. */

import type { Bus, BusMessage } from '../../platform/bus/bus.ts';
import { chunksOf } from '../../platform/chunks.ts';
import { publishChanges } from '../../platform/waits/changes.ts';
import { runTopic } from '../run-topic.ts';
import type { ChangedTask } from './store/change-result.ts';

/**
 * Tasks that have ended: `{ids}`. Every instance that has ever had a wait for a task is
 * subscribed.
 */
export const TASK_ENDS_TOPIC = 'task-ends';

/** Another change of a task: `{id}`. Instances that follow the task are subscribed. */
export const taskTopic = (taskId: string): string => `task:${taskId}`;

/** Tells all instances that these tasks changed. */
export function publishChangedTasks(bus: Bus, changed: readonly ChangedTask[]): void {
  for (const { id, ended } of changed) if (!ended) bus.publish(taskTopic(id), { id });
  const ended = changed.flatMap((task) => (task.ended ? [task.id] : []));
  publishChanges(bus, TASK_ENDS_TOPIC, ended);
}

/** This many uuids fit into one message of the bus. */
const SERVERS_A_MESSAGE = 80;

/** These servers, for which this run acts, may have queued tasks, or a cancel for their agents. */
export function publishTaskHint(bus: Bus, run: string, serverUuids: readonly string[]): void {
  for (const some of chunksOf(serverUuids, SERVERS_A_MESSAGE))
    bus.publish(runTopic(run), { kind: 'tasks', server_uuids: some });
}

/** The servers of such a hint; empty for any other message. */
export function hintedServers({ kind, server_uuids: uuids }: BusMessage): string[] {
  return kind === 'tasks' && Array.isArray(uuids) ? uuids.filter((uuid) => typeof uuid === 'string') : [];
}

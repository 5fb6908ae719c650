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

/** A server that has a new task, or a cancel. */
export interface ServerToNotify {
  serverUuid: string;
  /** The run with authority for it; null if none has. */
  run: string | null;
}

/** This many uuids fit into one message of the bus. */
const SERVERS_A_MESSAGE = 80;

/** Tells the other runs with authority for these servers; `ownRun` needs no message. */
export function publishTaskHints(bus: Bus, servers: readonly ServerToNotify[], ownRun: string): void {
  for (const [run, group] of Map.groupBy(servers, (server) => server.run)) {
    if (run === null || run === ownRun) continue;
    for (const chunk of chunksOf(group, SERVERS_A_MESSAGE))
      bus.publish(runTopic(run), { kind: 'tasks', server_uuids: chunk.map(({ serverUuid }) => serverUuid) });
  }
}

/** The servers of such a hint; empty for any other message. */
export function hintedServers({ kind, server_uuids: uuids }: BusMessage): string[] {
  return kind === 'tasks' && Array.isArray(uuids) ? uuids.filter((uuid) => typeof uuid === 'string') : [];
}

/**
 * Three instances over one database and a bus in memory, and shorthands for requests to them and
 * their agents.
 */
import type { Test } from 'tap';
import type { TaskRow } from '../../../../lib/control/tasks/store/task.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { MemoryHub } from '../../../support/memory-bus.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import { until } from '../../../support/until.ts';
import { type FakeAgent, type InstanceOptions, startInstance } from './fake-agents.ts';
import { migrations, row } from './task-database.ts';

export async function threeInstances(t: Test, config: InstanceOptions['config'] = {}) {
  const { database } = await freshDatabase(t, { migrations });
  const hub = new MemoryHub();
  const options = { database, hub, config };
  const start = () => startInstance(t, options);
  return { a: await start(), b: await start(), c: await start(), database, hub, start };
}

/** The timeout of a wait for a task's end. */
export const patience = { timeoutMs: 30_000 };

export const nop = (agent: FakeAgent, fields = {}) => ({
  serverUuid: agent.serverUuid,
  name: 'nop' as const,
  params: {},
  ...fields,
});

/** Makes the agent's tasks never end by themselves. */
export const holding = (agent: FakeAgent): FakeAgent => Object.assign(agent, { works: () => {} });

/** Waits until a row reaches a state. */
export async function untilRow(database: Queryable, id: string, isReached: (task: TaskRow) => boolean): Promise<void> {
  await until(async () => isReached(await row(database, id)), `task ${id}: ${isReached}`);
}

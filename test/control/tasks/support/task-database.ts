/**
 * A database with the tables of tasks and roster, and shorthands for the rows that tests of tasks
 * need.
 */

import { randomUUID } from 'node:crypto';
import { toTicks } from '../../../../lib/control/tasks/deadlines/deadline-counter.ts';
import { type OverdueTask, takeOverdue } from '../../../../lib/control/tasks/deadlines/deadline-store.ts';
import { claimTasks, readDispatches, type TaskToSend } from '../../../../lib/control/tasks/dispatch/claim-store.ts';
import type { Report } from '../../../../lib/control/tasks/reports/report.ts';
import { recordReports } from '../../../../lib/control/tasks/reports/report-store.ts';
import type { ChangedTask } from '../../../../lib/control/tasks/store/change-result.ts';
import type { TaskRow } from '../../../../lib/control/tasks/store/task.ts';
import { createTask, type NewTask, readTask } from '../../../../lib/control/tasks/store/task-store.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import type { Migration } from '../../../../lib/platform/postgres/migrations.ts';
import { migrationsOf } from '../../../support/migrations-of.ts';

export const migrations: readonly Migration[] = migrationsOf('moray', 'roster', 'legacy', 'tasks');

export const overdueMs = 60_000;
export const resendMs = 5_000;

/** A session's fence, as in the roster row. */
export interface Seat {
  serverUuid: string;
  run: string;
  epoch: number;
  journalId: string;
}

/** A server whose agent is connected. */
export async function seat(database: Queryable, fields: Partial<Seat> = {}): Promise<Seat> {
  const made = { serverUuid: randomUUID(), run: randomUUID(), epoch: 1, journalId: randomUUID(), ...fields };
  await database.query(
    `insert into cnapi_roster_authority (server_uuid, run, epoch, status, reason, since, journal_id)
       values ($1::uuid, $2::uuid, $3::bigint, 'running', 'connected', cnapi_now(), $4::uuid)`,
    [made.serverUuid, made.run, made.epoch, made.journalId],
  );
  return made;
}

/** The accept of another session, as the roster does it. */
export async function accept(database: Queryable, old: Seat, fields: Partial<Seat> = {}): Promise<Seat> {
  const made = { ...old, run: randomUUID(), epoch: old.epoch + 1, ...fields };
  await database.query(acceptSql, [made.serverUuid, made.run]);
  return made;
}

export const acceptSql = `update cnapi_roster_authority set epoch = epoch + 1, run = $2::uuid, status = 'running'
  where server_uuid = $1::uuid`;

export async function setUnknown(database: Queryable, serverUuid: string): Promise<void> {
  await database.query(`update cnapi_roster_authority set status = 'unknown' where server_uuid = $1::uuid`, [
    serverUuid,
  ]);
}

export function newTask(serverUuid: string, fields: Partial<NewTask> = {}): NewTask {
  return {
    id: randomUUID(),
    serverUuid,
    name: 'nop',
    params: {},
    timeoutMs: 3_600_000,
    idempotent: false,
    idempotencyKey: undefined,
    requestHash: 'hash',
    requestId: undefined,
    ...fields,
  };
}

export async function create(database: Queryable, serverUuid: string, fields: Partial<NewTask> = {}): Promise<string> {
  const made = await createTask(database, newTask(serverUuid, fields));
  if (made === undefined) throw new Error('the queue is full');
  return made.id;
}

/** What an agent is told: to start a task, or to end one. */
export type AgentOrder = ({ what: 'send' } & TaskToSend) | ({ what: 'cancel' } & OverdueTask);

export function claim(database: Queryable, seat: Seat): Promise<AgentOrder[]> {
  return claimAll(database, seat.run, [seat]);
}

/** What to tell the agents of these sessions. */
export async function claimAll(database: Queryable, run: string, sessions: readonly Seat[]): Promise<AgentOrder[]> {
  const { claimed, cancels } = await claimTasks(database, run, { sessions, resendMs });
  const overdue = await takeOverdue(database, sessions, { overdueMs, resendMs });
  const orders = await readDispatches(database, claimed);
  return [
    ...orders.map((order): AgentOrder => ({ what: 'send', ...order })),
    ...[...cancels, ...overdue].map((given): AgentOrder => ({ what: 'cancel', ...given })),
  ];
}

export async function record(
  database: Queryable,
  seat: Seat,
  id: string,
  report: Partial<Report>,
  attempt = 1,
): Promise<ChangedTask[]> {
  const subject = { id, serverUuid: seat.serverUuid, attempt };
  const reports = [{ subject, report: { reportedAt: '2030-01-01', ...report } as Report }];
  return (await recordReports(database, reports)).changed;
}

export const complete = (result = {}): Partial<Report> => ({ name: 'complete', resultJson: JSON.stringify(result) });

export async function row(database: Queryable, id: string): Promise<TaskRow> {
  const found = await readTask(database, id);
  if (found === undefined) throw new Error(`no task ${id}`);
  return found;
}

/** Moves a task's times into the past. */
export async function backdate(database: Queryable, id: string, ms: number): Promise<void> {
  await database.query(
    `update cnapi_tasks set queued_at = queued_at - $2::int * interval '1 ms', sent_at = sent_at - $2::int * interval '1 ms',
       claimed_at = claimed_at - $2::int * interval '1 ms', cancel_sent_at = cancel_sent_at - $2::int * interval '1 ms',
       accepted_at = accepted_at - $2::int * interval '1 ms', started_at = started_at - $2::int * interval '1 ms',
       ended_at = ended_at - $2::int * interval '1 ms', created_at = created_at - $2::int * interval '1 ms',
       queued_tick = queued_tick - $3::int, worked_tick = worked_tick - $3::int
       where id = $1::uuid`,
    [id, ms, toTicks(ms)],
  );
}

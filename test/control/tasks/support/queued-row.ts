/** The row of a task that nobody has taken yet, with what a test changes. */
import type { TaskRow } from '../../../../lib/control/tasks/store/task.ts';

export function queuedRow(fields: Partial<TaskRow> = {}): TaskRow {
  return {
    id: 'task-1',
    server_uuid: 'server-1',
    name: 'nop',
    params: {},
    timeout_ms: 1_000,
    idempotent: false,
    req_id: null,
    ticket_uuid: null,
    state: 'queued',
    outcome: null,
    attempt: 0,
    created_at: new Date('2030-01-01T00:00:00.000Z'),
    accepted_at: null,
    started_at: null,
    cancel_requested_at: null,
    ended_at: null,
    progress: null,
    progress_at: null,
    result: null,
    error: null,
    ...fields,
  };
}

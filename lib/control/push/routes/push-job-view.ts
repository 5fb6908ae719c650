/**
 * A push job as a caller may see it. The command and its options may hold anything, so only callers
 * who may see the contents of tasks see them. Pure.
 */
import { given } from '../../../platform/given.ts';
import type { PushJob, PushNode } from '../../../protocol/api/push-jobs.ts';
import { type Actor, hasRight } from '../../access/token.ts';
import { statusOf } from '../push-job.ts';
import type { PushJobRow, PushNodeRow } from '../push-store.ts';

export function pushJobFor(actor: Actor, row: PushJobRow): PushJob {
  const contents = hasRight(actor, 'task-contents') ? contentsOf(row) : { withheld: true };
  return {
    id: row.id,
    ...contents,
    status: statusOf(row.state, row.outcome),
    ...given('reason', row.reason),
    ...given('aborted_by', row.abort_actor),
    ...(row.coordinator === undefined ? {} : { coordinator: row.coordinator }),
    quorum: row.quorum,
    node_count: row.node_count,
    counts: row.counts,
    ...given('concurrency', row.concurrency),
    ...given('start_rate', row.start_rate),
    ...given('max_failures', row.max_failures),
    run_timeout_ms: row.run_timeout_ms,
    ...given('node_timeout_ms', row.node_timeout_ms),
    voting_timeout_ms: row.voting_timeout_ms,
    ...given('ticket', row.ticket),
    actor: row.actor,
    created_at: row.created_at.toISOString(),
    updated_at: row.state_since.toISOString(),
  };
}

function contentsOf({ command, options, has_file }: PushJobRow) {
  const { user, dir, env, capture } = options;
  return {
    command,
    ...given('user', user),
    ...given('dir', dir),
    ...(env === undefined || Object.keys(env).length === 0 ? {} : { env: { ...env } }),
    ...(has_file ? { file_specified: true } : {}),
    ...given('capture_output', capture),
  };
}

export function pushNodeFor(actor: Actor, row: PushNodeRow): PushNode {
  return {
    server_uuid: row.server_uuid,
    name: row.name,
    status: row.state,
    ...given('reason', row.reason),
    ...(hasRight(actor, 'task-contents') ? given('message', row.message) : {}),
    ...given('busy_with', row.busy_with),
    ...given('task_id', row.task),
    ...given('exit_code', row.exit_code),
    ...(row.is_cancelled ? { cancelled: true } : {}),
    updated_at: row.updated_at.toISOString(),
  };
}

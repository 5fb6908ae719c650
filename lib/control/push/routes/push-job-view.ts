/**
 * A push job, its nodes, and the states of servers in push jobs, as a caller may see them. The
 * command and its options may hold anything, so only callers who may see the contents of tasks see
 * them. Pure.
 */
import { definedFields } from '../../../platform/defined-fields.ts';
import type { PushJob, PushNode } from '../../../protocol/api/push/job-schemas.ts';
import type { PushNodeState } from '../../../protocol/api/push/nodes.ts';
import { type Actor, hasRight } from '../../access/token.ts';
import { toJobStatus } from '../push-job.ts';
import type { NodeStateRow, PushJobRow, PushNodeRow } from '../push-store.ts';

export function toPushJob(row: PushJobRow, actor: Actor): PushJob {
  const contents = hasRight(actor, 'task-contents') ? contentsOf(row) : { withheld: true };
  return {
    id: row.id,
    ...contents,
    status: toJobStatus(row.state, row.outcome),
    ...definedFields({ reason: row.reason, aborted_by: row.abort_actor }),
    ...(row.coordinator === undefined ? {} : { coordinator: row.coordinator }),
    quorum: row.quorum,
    node_count: row.node_count,
    counts: row.counts,
    ...definedFields({ concurrency: row.concurrency, start_rate: row.start_rate, max_failures: row.max_failures }),
    run_timeout_ms: row.run_timeout_ms,
    ...definedFields({ node_timeout_ms: row.node_timeout_ms }),
    voting_timeout_ms: row.voting_timeout_ms,
    ...definedFields({ ticket: row.ticket }),
    actor: row.actor,
    created_at: row.created_at.toISOString(),
    updated_at: row.state_since.toISOString(),
  };
}

function contentsOf({ command, options, has_file }: PushJobRow) {
  const { user, dir, env, capture } = options;
  return {
    command,
    ...definedFields({ user, dir }),
    ...(env === undefined || Object.keys(env).length === 0 ? {} : { env: { ...env } }),
    ...(has_file ? { file_specified: true } : {}),
    ...definedFields({ capture_output: capture }),
  };
}

export function toPushNode(row: PushNodeRow, actor: Actor): PushNode {
  return {
    server_uuid: row.server_uuid,
    name: row.name,
    status: row.state,
    ...definedFields({ reason: row.reason }),
    ...(hasRight(actor, 'task-contents') ? definedFields({ message: row.message }) : {}),
    ...definedFields({ busy_with: row.busy_with, task_id: row.task, exit_code: row.exit_code }),
    ...(row.is_cancelled ? { cancelled: true } : {}),
    updated_at: row.updated_at.toISOString(),
  };
}

/** `name`: the server's hostname. */
export function toPushNodeState({ server_uuid, state, job: jobId }: NodeStateRow, name: string): PushNodeState {
  const status = state === 'in-job' ? 'in_job' : state;
  return { server_uuid, name, status, ...definedFields({ job: jobId }) };
}

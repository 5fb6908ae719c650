/**
 * Noderoles as callers see them. Callers without the right `task-contents` see neither data nor
 * texts of errors, which may quote a program. Pure.
 */
import { definedFields } from '../../../platform/defined-fields.ts';
import type { Noderole, NoderoleAnswer } from '../../../protocol/api/annealer.ts';
import { type Actor, hasRight } from '../../access/token.ts';
import type { NoderoleDetails, NoderoleRow, ServerRun } from '../noderole-store.ts';

export function toNoderole(row: NoderoleRow, actor: Actor): Noderole {
  const { error } = row;
  return {
    uuid: row.id,
    role: row.role,
    server_uuid: row.server_uuid,
    deployment: row.deployment_id,
    state: row.state,
    cohort: row.cohort,
    run_count: row.run_count,
    failures: row.failures,
    ...definedFields({ blocked_by: row.blocked_by }),
    ...(error !== null && { error: hasRight(actor, 'task-contents') ? error : { code: error.code, message: '' } }),
    state_since: row.state_since.toISOString(),
  };
}

interface ExplainedNoderole {
  noderole: NoderoleDetails;
  explanation: string;
  run: ServerRun | undefined;
}

export function toNoderoleDetails({ noderole, explanation, run }: ExplainedNoderole, actor: Actor): NoderoleAnswer {
  const isWhole = hasRight(actor, 'task-contents');
  const neighbours = (all: NoderoleDetails['parents']) => all.map(({ id, ...rest }) => ({ uuid: id, ...rest }));
  return {
    ...toNoderole(noderole, actor),
    explanation,
    data: isWhole ? noderole.committed_data : {},
    ...(isWhole && definedFields({ proposed_data: noderole.proposed_data })),
    wall: isWhole ? noderole.wall : {},
    parents: neighbours(noderole.parents),
    children: neighbours(noderole.children),
    ...(run !== undefined && {
      run: { uuid: run.id, ...definedFields({ task_id: run.taskId }), started_at: run.startedAt.toISOString() },
    }),
    ...(!isWhole && { withheld: true }),
  };
}

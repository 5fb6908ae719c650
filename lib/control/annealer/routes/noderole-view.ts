/**
 * Noderoles as callers see them. Callers without the right `task-contents` see neither data nor
 * texts of errors, which may quote a program. Pure.
 */
import { definedFields } from '../../../platform/defined-fields.ts';
import type { Noderole, WholeNoderoleAnswer } from '../../../protocol/api/annealer.ts';
import { type Actor, hasRight } from '../../access/token.ts';
import type { NoderoleRow, WholeNoderole } from '../noderole-store.ts';
import type { OpenRun } from '../run-store.ts';

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
    ...definedFields({ blocked_by: row.culprit }),
    ...(error !== null && { error: hasRight(actor, 'task-contents') ? error : { code: error.code, message: '' } }),
    state_since: row.state_since.toISOString(),
  };
}

interface ExplainedNoderole {
  noderole: WholeNoderole;
  explanation: string;
  run: OpenRun | undefined;
}

export function toWholeNoderole({ noderole, explanation, run }: ExplainedNoderole, actor: Actor): WholeNoderoleAnswer {
  const isWhole = hasRight(actor, 'task-contents');
  const neighbours = (all: WholeNoderole['parents']) => all.map(({ id, ...rest }) => ({ uuid: id, ...rest }));
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

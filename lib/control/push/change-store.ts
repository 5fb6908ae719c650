/** SQL of what callers change in push jobs that go on. */
import type { Queryable } from '../../platform/postgres/database.ts';
import { Parameters, type StatementPart, statementName } from '../../platform/sql-text.ts';
import type { JobState } from './push-job.ts';

export interface ChangeOfNodes {
  /** Before the change. */
  state: JobState;
  /** Some of those servers that made it impossible; if there are any, nothing was changed. */
  strange: string[];
}

/**
 * `soft`: a command that runs may end. `strange`: no nodes of the job. Undefined if the job does not
 * exist.
 */
export async function requestAbortOfNodes(
  database: Queryable,
  job: string,
  { nodes, how, record }: { nodes: readonly string[]; how: 'soft' | 'hard'; record?: StatementPart | undefined },
): Promise<ChangeOfNodes | undefined> {
  const parameters = new Parameters([job, nodes, how]);
  const recorded = record === undefined ? '' : `with recorded as (${record(parameters)}) `;
  const { rows } = await database.query<ChangeOfNodes>(
    `${recorded}select * from cnapi_request_abort_of_push_nodes($1::uuid, $2::uuid[], $3::text)`,
    parameters.values,
    { name: statementName('request abort of push nodes', record) },
  );
  return rows[0];
}

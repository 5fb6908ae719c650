/**
 * SQL of one page of push jobs, newest first: of all jobs, and of those of an organization.
 * Commands and options may be large, and a job may have many nodes to count, so a page is bounded
 * in its bytes and in the nodes that are counted for it, not only in its number of jobs.
 */
import type { Queryable } from '../../platform/postgres/database.ts';
import { fromMicroseconds, inMicroseconds, SqlParameters } from '../../platform/postgres/sql-text.ts';
import type { Cursor } from '../../protocol/api/contract/cursor.ts';

interface PageBounds {
  /** Where the page before ended. The job there may have been deleted since. */
  after?: Cursor | undefined;
  limit: number;
  /** Limits the commands and options of a page; its last job may exceed it. */
  bytes: number;
  /** Limits the nodes that are counted for a page; its last job may exceed it. */
  nodes: number;
}

export interface PushJobPage<Row> {
  jobs: Row[];
  /** Where the next page begins; undefined after the last one. */
  next: Cursor | undefined;
}

/** How many nodes of `j` are in each state. Those of a job that has ended are in its row. */
export const NODE_COUNTS = 'coalesce(j.counts, cnapi_count_push_nodes(j.id))';

const NEWEST_FIRST = 'created_at desc, id desc';

/** The cursor of the job `j`: the next page continues after it. */
export const CURSOR = `json_build_object('at', ${inMicroseconds('j.created_at')}, 'id', j.id)`;

/**
 * `columns` and `where` are SQL about the job `j`, and one of the columns is `cursor`. `values` are
 * the parameters to which they refer.
 */
export async function readJobPage<Row extends { cursor: Cursor }>(
  database: Queryable,
  { columns, where, values }: { columns: string; where: string; values: readonly unknown[] },
  { after, limit, bytes, nodes }: PageBounds,
): Promise<PushJobPage<Row>> {
  const parameters = new SqlParameters(values);
  const isAfter =
    after === undefined
      ? 'true'
      : `(j.created_at, j.id) < (${fromMicroseconds(parameters.add(after.at, 'bigint'))}, ${parameters.add(after.id, 'uuid')})`;
  const text = `select ${columns}, j.found
       from (
         select w.*, count(*) over ()::int as found, sum(w.bytes) over newest - w.bytes as bytes_before,
             sum(w.to_count) over newest - w.to_count as nodes_before
           from (
             select j.*, case when j.counts is null then j.node_count else 0 end as to_count from cnapi_push_jobs j
               where ${where} and ${isAfter} order by ${NEWEST_FIRST} limit ${parameters.add(limit, 'int')}
           ) as w
           window newest as (order by ${NEWEST_FIRST})
       ) as j
       where j.bytes_before < ${parameters.add(bytes, 'bigint')} and j.nodes_before < ${parameters.add(nodes, 'bigint')}
       order by ${NEWEST_FIRST}`;
  const { rows } = await database.query<Row & { found: number }>(text, parameters.values);
  const last = rows.at(-1);
  const isLastPage = last === undefined || (rows.length === last.found && last.found < limit);
  return {
    jobs: rows,
    next: isLastPage ? undefined : last.cursor,
  };
}

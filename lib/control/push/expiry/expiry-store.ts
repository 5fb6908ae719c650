/** SQL that deletes ended push jobs: by their age, and by their number in an organization. */
import type { Queryable } from '../../../platform/postgres/database.ts';
import { fromMicroseconds, inMicroseconds, SqlParameters } from '../../../platform/postgres/sql-text.ts';
import type { Cursor } from '../../../protocol/api/contract/cursor.ts';
import type { ExpiryPart } from '../../audit-part.ts';
import { END_DETAILS } from '../audit-details.ts';

/** `nodes`: of all of them together. `records`: for the audit, in the same commit. */
interface Batch {
  limit: number;
  nodes: number;
  records?: ExpiryPart | undefined;
}

/** Deletes jobs that ended more than `days` ago; returns how many. */
export function deleteEndedPushJobs(
  database: Queryable,
  { days, ...batch }: Batch & { days: number },
): Promise<number> {
  const parameters = new SqlParameters();
  const where = `state_since < cnapi_now() - ${parameters.add(days, 'int')} * interval '1 day'`;
  return deleteOldest(database, { where, parameters }, batch);
}

/** The ended jobs beyond the limit of an organization: all that ended not later than `upTo`. */
export interface SurplusJobs {
  organizationUuid: string;
  upTo: Cursor | undefined;
}

/**
 * Returns the ended jobs beyond the `keep` newest of the organization that follows `after`;
 * undefined if no organization follows. Reads `keep` entries of an index.
 */
export async function readSurplusJobs(
  database: Queryable,
  { after, keep }: { after: string; keep: number },
): Promise<SurplusJobs | undefined> {
  const { rows } = await database.query<{ organization: string; at: string | null; id: string | null }>(
    `select o.organization, newest.at, newest.id
       from (
         select j.organization from cnapi_push_jobs j
           where j.state = 'ended' and j.organization is not null and j.organization > $1::text
           order by j.organization limit 1
       ) as o left join lateral (
         select ${inMicroseconds('j.state_since')} as at, j.id from cnapi_push_jobs j
           where j.state = 'ended' and j.organization is not null and j.organization = o.organization
           order by j.state_since desc, j.id desc offset $2::int limit 1
       ) as newest on true`,
    [after, keep],
  );
  const [row] = rows;
  if (row === undefined) return undefined;
  const { organization: organizationUuid, at, id } = row;
  return { organizationUuid, upTo: at === null || id === null ? undefined : { at, id } };
}

/** Deletes jobs of the organization that ended up to this one; returns how many. */
export function deleteSurplusJobs(
  database: Queryable,
  { organizationUuid, upTo, ...batch }: Batch & { organizationUuid: string; upTo: Cursor },
): Promise<number> {
  const parameters = new SqlParameters();
  const where = `organization is not null and organization = ${parameters.add(organizationUuid, 'text')}
      and (state_since, id) <=
        (${fromMicroseconds(parameters.add(upTo.at, 'bigint'))}, ${parameters.add(upTo.id, 'uuid')})`;
  return deleteOldest(database, { where, parameters }, batch);
}

/**
 * Deletes the oldest of these jobs. At most as many as have `nodes` together, because their nodes
 * are deleted with them; and at least one.
 */
async function deleteOldest(
  database: Queryable,
  { where, parameters }: { where: string; parameters: SqlParameters },
  { limit, nodes, records }: Batch,
): Promise<number> {
  const mostJobs = parameters.add(limit, 'int');
  const mostNodes = parameters.add(nodes, 'int');
  const recorded = records === undefined ? '' : `, recorded as (${records(parameters, 'gone')})`;
  const { rows } = await database.query<{ count: number }>(
    `with gone as (
       delete from cnapi_push_jobs j where j.state = 'ended' and j.id = any (array(
       select o.id from (
         select old.id, sum(old.node_count) over oldest as nodes, row_number() over oldest as number
           from (
             select id, node_count, state_since from cnapi_push_jobs
               where state = 'ended' and ${where}
               order by state_since limit ${mostJobs} for update skip locked
           ) as old
           window oldest as (order by old.state_since, old.id)
       ) as o
       where o.number = 1 or o.nodes <= ${mostNodes}))
       returning j.id, ${END_DETAILS} as details
     )${recorded} select count(*)::int as count from gone`,
    parameters.values,
  );
  return rows[0]?.count ?? 0;
}

/**
 * SQL of the followers of push jobs: how far jobs have come, and nodes that changed. Nothing is
 * locked.
 */
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { PushJobState } from '../push-job.ts';
import { nodeColumns, type PushNodeRow } from '../push-store.ts';

export interface ChangedNodes {
  /** Only nodes that have changed since then; undefined: all nodes. */
  since: Date | undefined;
  /** Also all nodes that have not ended, whenever they changed. */
  withOpen: boolean;
  after: string | undefined;
  limit: number;
}

/** Returns the changed nodes after `after`, in order of uuid. */
export async function readChangedNodes(
  database: Queryable,
  jobId: string,
  { since, withOpen, after, limit }: ChangedNodes,
): Promise<PushNodeRow[]> {
  const { rows } = await database.query<PushNodeRow>(
    `select ${nodeColumns} from cnapi_push_nodes
       where job = $1::uuid and ($3::uuid is null or server_uuid > $3::uuid)
         and ($2::timestamptz is null or updated_at >= $2::timestamptz or $5::boolean and cnapi_is_push_node_open(state))
       order by server_uuid limit $4::int`,
    [jobId, since ?? null, after ?? null, limit, withOpen],
    { name: 'read changed push nodes' },
  );
  return rows;
}

/** How far a job has come, as one read found it. */
export interface PushJobPosition {
  id: string;
  /** The number of the read on this instance, in the order in which reads began. */
  number: number;
  /** The database's time, in which nodes say when they changed. */
  moment: Date;
  state: PushJobState;
  /** The number of the last event of its feed. */
  lastEvent: number;
}

/** Jobs that do not exist are left out. */
export async function readJobPositions(
  database: Queryable,
  jobs: readonly string[],
): Promise<Omit<PushJobPosition, 'number'>[]> {
  const { rows } = await database.query<Omit<PushJobPosition, 'number'>>(
    `select id, cnapi_now() as moment, state, last_event as "lastEvent" from cnapi_push_jobs where id = any ($1::uuid[])`,
    [jobs],
    { name: 'read positions of push jobs' },
  );
  return rows;
}

/** SQL of the followers of a push job: its nodes that changed. Nothing is locked. */
import type { Queryable } from '../../platform/postgres/database.ts';
import { nodeColumns, type PushNodeRow } from './push-store.ts';

export interface ChangedNodes {
  /** Undefined: all nodes. */
  since: Date | undefined;
  /** Those that have not ended as well, whenever they changed. */
  withOpen: boolean;
  after: string | undefined;
  limit: number;
}

/** In the order of their uuids, from after `after`. */
export async function readChangedNodes(
  database: Queryable,
  job: string,
  { since, withOpen, after, limit }: ChangedNodes,
): Promise<PushNodeRow[]> {
  const { rows } = await database.query<PushNodeRow>(
    `select ${nodeColumns} from cnapi_push_nodes
       where job = $1::uuid and ($3::uuid is null or server_uuid > $3::uuid)
         and ($2::timestamptz is null or updated_at >= $2::timestamptz or $5::boolean and state in ('new', 'ready', 'running'))
       order by server_uuid limit $4::int`,
    [job, since ?? null, after ?? null, limit, withOpen],
  );
  return rows;
}

/** The database's time, in which nodes say when they changed. */
export async function readMoment(database: Queryable): Promise<Date> {
  const { rows } = await database.query<{ now: Date }>('select cnapi_now() as now', []);
  return rows[0]?.now ?? new Date(0);
}

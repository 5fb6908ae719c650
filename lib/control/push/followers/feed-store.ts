/** SQL of the feed of a push job: what happened to it, in the words of Chef. */
import type { Queryable } from '../../../platform/postgres/database.ts';
import { inMicroseconds } from '../../../platform/postgres/sql-text.ts';

export interface FeedEvent {
  /** Counts from 2; number 1, `start`, is the job itself. */
  number: number;
  name: 'quorum_vote' | 'quorum_succeeded' | 'run_start' | 'run_complete' | 'rehab' | 'job_complete';
  /** Null for an event of the job. */
  node: string | null;
  status: string | null;
  /** Microseconds since 1970. Each event of a feed has a later time than the one before it. */
  atUs: string;
}

const PAGE_ROWS = 2;

/** The next events after this number, in order. */
export async function readFeed(database: Queryable, jobId: string, after: number): Promise<FeedEvent[]> {
  const { rows } = await database.query<FeedEvent>(
    `select f.last - f.count + e.place as number, f.name, e.node, f.status,
         ${inMicroseconds("(f.at + (e.place - 1) * interval '1 microsecond')")} as "atUs"
       from (
         select last, name, status, nodes, at, coalesce(cardinality(nodes), 1) as count from cnapi_push_feed
           where job = $1::uuid and last > $2::int order by last limit $3::int
       ) as f
       cross join lateral unnest(coalesce(f.nodes, array[null::text])) with ordinality as e (node, place)
       where f.last - f.count + e.place > $2::int
       order by 1`,
    [jobId, after, PAGE_ROWS],
    { name: 'read feed of push job' },
  );
  return rows.map((row) => ({ ...row, number: Number(row.number) }));
}

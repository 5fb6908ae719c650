/** Rules of push jobs that the database needs as well: both say the same. */
import t from 'tap';
import { countQuorum } from '../../../lib/control/push/push-job.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { NODE_STATUSES } from '../../../lib/protocol/api/push/job-schemas.ts';
import { OPEN_NODE_STATUSES } from '../../../lib/protocol/push.ts';
import { freshDatabase } from '../../support/postgres.ts';

const PERCENTS = [1e-12, 0.1, 1, 10, 100 / 3, 50, 66.6, 80, 99.99, 100];
const NODES = [1, 2, 3, 7, 10, 21, 1_000, 19_999, 20_000];

t.test('a percentage is as many nodes in SQL as in TypeScript', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const { rows } = await database.query<{ percent: number; nodes: number; quorum: number }>(
    `select p as percent, n as nodes, cnapi_push_quorum(p, n) as quorum
       from unnest($1::float8[]) as p cross join unnest($2::int[]) as n`,
    [PERCENTS, NODES],
  );
  t.equal(rows.length, PERCENTS.length * NODES.length);
  for (const { percent, nodes, quorum } of rows)
    t.equal(quorum, countQuorum({ percent }, nodes), `${percent}% of ${nodes} nodes`);
});

t.test('the same nodes have not ended in SQL as in TypeScript', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const { rows } = await database.query<{ state: string }>(
    'select s as state from unnest($1::text[]) with ordinality as u (s, place) where cnapi_is_push_node_open(s) order by place',
    [NODE_STATUSES],
  );
  t.same(
    rows.map(({ state }) => state),
    OPEN_NODE_STATUSES,
  );
});

/** Rules of push jobs that the database needs as well: both say the same. */
import t from 'tap';
import { quorumOf } from '../../../lib/control/push/push-job.ts';
import {
  EVENTS_WITHOUT_REASON,
  eventOfTask,
  type NodeEvent,
  type NodeStage,
  nextStateOf,
  reasonOfEvent,
  type TaskProgress,
} from '../../../lib/control/push/push-node.ts';
import { migrations } from '../../../lib/control/schema.ts';
import { NODE_STATUSES } from '../../../lib/protocol/api/push-jobs.ts';
import { NODE_REASONS, OPEN_NODE_STATUSES } from '../../../lib/protocol/push.ts';
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
    t.equal(quorum, quorumOf({ percent }, nodes), `${percent}% of ${nodes} nodes`);
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

const EVENTS: readonly NodeEvent[] = [...EVENTS_WITHOUT_REASON, ...NODE_REASONS];
const STAGES: readonly NodeStage[] = ['new', 'ready', 'starting', 'running'];

t.test('a node has the same next state in SQL as in TypeScript, for each stage and event', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const { rows } = await database.query<{ stage: NodeStage; event: NodeEvent; late: boolean; next: string | null }>(
    `select stage, event, late, cnapi_next_push_node(stage, event, late) as next
       from unnest($1::text[]) as stage cross join unnest($2::text[]) as event
         cross join unnest('{true, false}'::boolean[]) as late`,
    [STAGES, EVENTS],
  );
  t.equal(rows.length, 2 * STAGES.length * EVENTS.length);
  for (const { stage, event, late, next } of rows)
    t.equal(next, nextStateOf(stage, event, late) ?? null, `${stage}, ${event}${late ? ', late' : ''}`);
});

t.test('a node that has its task ends in SQL, where it is ready, as one that is starting', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const { rows } = await database.query<{ event: NodeEvent; ready: string; starting: string }>(
    `select event, cnapi_next_push_node('ready', event, late) as ready,
         cnapi_next_push_node('starting', event, late) as starting
       from unnest('{down, restarted, given-up}'::text[]) as event
         cross join unnest('{true, false}'::boolean[]) as late`,
  );
  for (const { event, ready, starting } of rows) t.equal(ready, starting, event);
});

t.test('an event is the same reason in SQL as in TypeScript, and a node can have each', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const { rows } = await database.query<{ event: NodeEvent; reason: string | null }>(
    'select event, cnapi_push_node_reason(event) as reason from unnest($1::text[]) as event',
    [EVENTS],
  );
  t.equal(rows.length, EVENTS.length);
  for (const { event, reason } of rows) t.equal(reason, reasonOfEvent(event), event);
  const { rows: checks } = await database.query<{ text: string }>(
    `select pg_get_constraintdef(oid) as text from pg_constraint
       where conrelid = 'cnapi_push_nodes'::regclass and contype = 'c' and conname like '%reason%'`,
  );
  const checked = [...(checks[0]?.text ?? '').matchAll(/'([^']+)'::text/g)].map(([, reason]) => reason);
  t.same(checked.sort(), [...NODE_REASONS].sort(), 'the check of the table names them all');
});

t.test('the end of a task is the same event in SQL as in TypeScript', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const { rows } = await database.query<TaskProgress & { event: NodeEvent }>(
    `select ended as "hasEnded", outcome, code as "exitCode", error as "errorCode",
         cnapi_push_node_event(ended, outcome, code, error) as event
       from unnest('{true, false}'::boolean[]) as ended cross join unnest('{complete, failure, null}'::text[]) as outcome
         cross join unnest('{0, 1, null}'::int[]) as code cross join unnest($1::text[]) as error`,
    [[...EVENTS, 'NewInLaterVersion', '', null]],
  );
  t.equal(rows.length, 2 * 3 * 3 * (EVENTS.length + 3));
  for (const { event, ...progress } of rows) t.equal(event, eventOfTask(progress), JSON.stringify(progress));
});

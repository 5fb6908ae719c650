/** What becomes of a node of a push job, in SQL: the rules of `push-node-rules.ts`, row by row. */

import { readFileSync } from 'node:fs';
import t from 'tap';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import type { NodeStatus } from '../../../lib/protocol/api/push/job-schemas.ts';
import { NODE_REASONS, type NodeReason, TASK_REASONS, VOTE_REASONS } from '../../../lib/protocol/push.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { NODE_EVENTS, type NodeEvent, type NodeStage, nextStateOf, reasonOfEvent, STAGES } from './push-node-rules.ts';

const { database } = await freshDatabase(t, { migrations });

type Next = [NodeStatus, NodeReason | null] | 'cannot happen';

/** READY of the specification is `ready` and `starting`, EXECUTING `running`. */
const specified: Record<string, [NodeStage, NodeEvent, Next]> = {
  'IDLE, the node reports ready: READY': ['new', 'voted', ['ready', null]],
  'IDLE, it reports anything else: it takes no part': ['new', 'busy', ['nacked', 'busy']],
  'READY, it reports that it executes this job: EXECUTING': ['starting', 'started', ['running', null]],
  'READY, it executes before it was given its task: it cannot': ['ready', 'started', 'cannot happen'],
  'READY, it reports that it is not ready any more: it leaves the job': [
    'ready',
    'stopping',
    ['unavailable', 'stopping'],
  ],
  'READY, it is another process: it leaves the job': ['ready', 'restarted', ['unavailable', 'restarted']],
  'READY, the job is ABORTING or FINISHED: it leaves the job': ['ready', 'job-ended', ['was_ready', 'job-ended']],
  'READY with its task, the job is ABORTING: its task is cancelled': ['starting', 'job-ended', 'cannot happen'],
  'READY with its task, that was cancelled: it leaves the job': ['starting', 'Cancelled', ['was_ready', 'Cancelled']],
  'EXECUTING, it reports that it has executed this: it has ended': ['running', 'succeeded', ['succeeded', null]],
  'EXECUTING, it reports that the command failed: it has ended': ['running', 'failed', ['failed', null]],
  'EXECUTING, it is ready for another job: it cannot, a server is in one job at a time': [
    'running',
    'voted',
    'cannot happen',
  ],
  'EXECUTING, it reports that it executes this: nothing': ['running', 'started', ['running', null]],
  'EXECUTING, it reports anything else: it leaves the job': ['running', 'restarted', ['crashed', 'restarted']],
  'EXECUTING, the job is ABORTING: its task is cancelled': ['running', 'job-ended', 'cannot happen'],
  'ABORTING, it reports that the command was ended: it has ended': ['running', 'Aborted', ['aborted', 'Aborted']],
  'ABORTING, the aborting timeout is over: it is given up': ['running', 'given-up', ['aborted', 'given-up']],
};

for (const [name, [stage, event, next]] of Object.entries(specified))
  t.test(name, async (t) => {
    const { rows } = await database.query<{ state: NodeStatus | null; reason: NodeReason | null }>(
      `select cnapi_next_push_node($1::text, $2::text, false) as state,
         cnapi_push_node_reason($2::text) as reason`,
      [stage, event],
    );
    const [row] = rows;
    t.same(row?.state ? [row.state, row.reason] : 'cannot happen', next);
  });

t.test('each event makes of a node in each stage what the rules say, in time and late', async (t) => {
  const { rows } = await database.query<{ stage: NodeStage; event: NodeEvent; late: boolean; next: string | null }>(
    `select stage, event, late, cnapi_next_push_node(stage, event, late) as next
       from unnest($1::text[]) as stage cross join unnest($2::text[]) as event
         cross join unnest('{true, false}'::boolean[]) as late`,
    [STAGES, NODE_EVENTS],
  );
  t.equal(rows.length, 2 * STAGES.length * NODE_EVENTS.length);
  for (const { stage, event, late, next } of rows)
    t.equal(next, nextStateOf(stage, event, late), `${stage}, ${event}${late ? ', late' : ''}`);
});

t.test('a node that has its task ends, where it is ready, as one that is starting', async (t) => {
  const { rows } = await database.query<{ event: NodeEvent; ready: string; starting: string }>(
    `select event, cnapi_next_push_node('ready', event, late) as ready,
         cnapi_next_push_node('starting', event, late) as starting
       from unnest('{down, restarted, given-up}'::text[]) as event
         cross join unnest('{true, false}'::boolean[]) as late`,
  );
  for (const { event, ready, starting } of rows) t.equal(ready, starting, event);
});

t.test('an event is the reason that the rules say, and a node can have each', async (t) => {
  const { rows } = await database.query<{ event: NodeEvent; reason: string | null }>(
    'select event, cnapi_push_node_reason(event) as reason from unnest($1::text[]) as event',
    [NODE_EVENTS],
  );
  t.equal(rows.length, NODE_EVENTS.length);
  for (const { event, reason } of rows) t.equal(reason, reasonOfEvent(event), event);
  const { rows: checks } = await database.query<{ text: string }>(
    `select pg_get_constraintdef(oid) as text from pg_constraint
       where conrelid = 'cnapi_push_nodes'::regclass and contype = 'c' and conname like '%reason%'`,
  );
  const checked = [...(checks[0]?.text ?? '').matchAll(/'([^']+)'::text/g)].map(([, reason]) => reason);
  t.same(checked.sort(), [...NODE_REASONS].sort(), 'the check of the table names them all');
});

t.test('a task says what happened to its node', async (t) => {
  const started = [false, null, null, null, 'started'] as const;
  const failures = TASK_REASONS.map((code) => [true, 'failure', null, code, code] as const);
  const unknown = ['NewInLaterVersion', 'down', 'voted', '', null].map(
    (code) => [true, 'failure', null, code, 'OutcomeUnknown'] as const,
  );
  for (const [hasEnded, outcome, exitCode, errorCode, event] of [
    started,
    [true, 'complete', 0, null, 'succeeded'],
    [true, 'complete', 3, null, 'failed'],
    // Nobody knows how the command ended.
    [true, 'complete', null, null, 'failed'],
    ...failures,
    ...unknown,
  ] as const) {
    const { rows } = await database.query<{ event: string }>(
      'select cnapi_push_node_event($1::boolean, $2::text, $3::int, $4::text) as event',
      [hasEnded, outcome, exitCode, errorCode],
    );
    t.equal(rows[0]?.event, event, `${outcome} ${exitCode} ${errorCode}`);
  }
});

t.test('each vote but ready, each end of a task, and each loss of the agent ends the node', async (t) => {
  const isEnd = (state: NodeStatus | null) => state !== null && !['new', 'ready', 'running'].includes(state);
  for (const reason of VOTE_REASONS)
    for (const stage of ['new', 'ready'] as const)
      t.ok(isEnd(nextStateOf(stage, reason, false)), `${reason}, ${stage}`);
  for (const reason of ['succeeded', 'failed', ...TASK_REASONS] as const)
    for (const stage of ['starting', 'running'] as const)
      t.ok(isEnd(nextStateOf(stage, reason, false)), `${reason}, ${stage}`);
  for (const stage of STAGES) t.ok(isEnd(nextStateOf(stage, 'down', false)), `down, ${stage}`);
  for (const stage of STAGES) t.ok(isEnd(nextStateOf(stage, 'given-up', false)), `given-up, ${stage}`);
});

t.test('the page of reasons explains each once', async (t) => {
  const page = readFileSync(new URL('../../../docs/push-node-reasons.md', import.meta.url), 'utf8');
  const rows = page.split('\n').filter((line) => line.startsWith('| `'));
  const explained = rows.flatMap((row) => [...(row.split('|')[1] ?? '').matchAll(/`([^`]+)`/g)].map(([, one]) => one));
  t.same(explained.sort(), [...NODE_REASONS].sort());
});

/** How the command line words the end of a node. */
import t from 'tap';
import { endingOfNode, mayRetry } from '../../../lib/cli/output/node-ending.ts';
import type { PushNode } from '../../../lib/protocol/api/push/job-schemas.ts';

const TASK = '9d3c5d6e-0f53-4c4e-8f43-2a1d2f0c7b10';
const node = (about: Partial<PushNode>): PushNode => ({
  ...{ server_uuid: TASK, name: 'web-1', status: 'failed', updated_at: '2030-01-01T00:00:00Z' },
  ...about,
});
const failed = (message: string, code: string) => ({ status: 'failure', error: { message, code }, result: {} });

const rows: [what: string, PushNode, end: object | undefined, reason: RegExp][] = [
  ['the exit code of the command', node({ exit_code: 3, task_id: TASK }), undefined, /^exit code 3$/],
  [
    'what the task says of its own end',
    node({ status: 'aborted', task_id: TASK }),
    failed('it was cancelled', 'Cancelled'),
    /^it was cancelled \(Cancelled\)$/,
  ],
  ['a server that is down', node({ status: 'unavailable', reason: 'down' }), undefined, /the server is down/],
  [
    'an agent that does not know push jobs',
    node({ status: 'unavailable', reason: 'unsupported' }),
    undefined,
    /does not know push jobs.*cnapi exec on this server alone/,
  ],
  [
    'another push job',
    node({ status: 'nacked', reason: 'busy', busy_with: TASK }),
    undefined,
    /with push job 9d3c5d6e$/,
  ],
  [
    'the rule that an agent names',
    node({ status: 'nacked', reason: 'not-allowed', message: 'the command is not in "allow"' }),
    undefined,
    /not in "allow"/,
  ],
  [
    'a crash, although the task was cancelled afterwards',
    node({ status: 'crashed', reason: 'AgentRestarted', task_id: TASK }),
    failed('it was cancelled', 'Cancelled'),
    /nobody knows how far/,
  ],
  [
    'a crash of a server that is still down',
    node({ status: 'crashed', reason: 'down', task_id: TASK }),
    undefined,
    /^the agent or its server went down while the command ran/,
  ],
  [
    'a crash of an agent that is up again',
    node({ status: 'crashed', reason: 'restarted', task_id: TASK }),
    undefined,
    /^the agent or its server went down while the command ran/,
  ],
  ['a job that ended first', node({ status: 'was_ready' }), undefined, /cancelled before it was started/],
  [
    'a reason of a later version',
    node({ status: 'unavailable', reason: 'new-reason' }),
    undefined,
    /unavailable: new-reason/,
  ],
];

for (const [what, given, end, reason] of rows)
  t.test(`a failed node is reported with ${what}`, async (t) => {
    t.match(endingOfNode(given, end as never), { kind: 'failed', reason });
  });

t.test('a node that succeeded has the result of its task', async (t) => {
  const end = { status: 'complete', result: { exitCode: 0, stdout: 'x' } };
  t.match(endingOfNode(node({ status: 'succeeded', task_id: TASK }), end), {
    kind: 'ok',
    id: TASK,
    result: end.result,
  });
});

t.test('a node whose command did not run is told from one whose command failed', (t) => {
  const nothingRan = (about: Partial<PushNode>) => {
    const ending = endingOfNode(node(about), undefined);
    return ending.kind === 'failed' && ending.notStarted;
  };
  t.equal(nothingRan({ status: 'nacked', reason: 'busy' }), true);
  t.equal(nothingRan({ status: 'unavailable', reason: 'down' }), true);
  t.equal(nothingRan({ status: 'was_ready', reason: 'node-aborted' }), true);
  t.equal(nothingRan({ status: 'failed', reason: 'permission-denied' }), true);
  t.equal(nothingRan({ status: 'failed', exit_code: 3 }), false);
  t.equal(nothingRan({ status: 'crashed', reason: 'down' }), false);
  t.equal(nothingRan({ status: 'timed_out', reason: 'TaskTimeout' }), false);
  t.end();
});

t.test('another try is proposed only where it may help', (t) => {
  const again = { status: 'failed' } as const;
  t.ok(mayRetry(again));
  t.ok(mayRetry({ status: 'nacked', reason: 'busy' }));
  t.ok(mayRetry({ status: 'unavailable', reason: 'down' }));
  for (const reason of ['not-allowed', 'bad-options', 'unsupported']) t.notOk(mayRetry({ status: 'nacked', reason }));
  t.notOk(mayRetry({ status: 'succeeded' }));
  t.notOk(mayRetry({ status: 'running' }));
  t.end();
});

t.test('a command that ran and was cancelled is told from one that was not started', async (t) => {
  const cancelled = (about: Partial<PushNode>) => {
    const ending = endingOfNode(node(about), undefined);
    return ending.kind === 'failed' && ending.cancelled;
  };
  t.equal(cancelled({ status: 'aborted', task_id: TASK }), true);
  t.equal(cancelled({ status: 'was_ready' }), false);
  t.equal(cancelled({ status: 'failed', exit_code: 3, task_id: TASK }), false);
});

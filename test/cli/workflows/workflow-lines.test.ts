/** What people read of a workflow job, row by row. */
import t from 'tap';
import {
  endingOfJob,
  endLines,
  failureLine,
  presentLine,
  stepLines,
} from '../../../lib/cli/workflows/workflow-lines.ts';
import type { WorkflowJob } from '../../../lib/protocol/api/workflows.ts';

const AT = '2030-01-01T00:00:00.000Z';
const TASK = '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11';
const step = (name: string) => ({ name, timeout: 300, retry: 3 });
const end = (name: string, error = '', error_code?: string) => ({
  ...{ name, result: error === '' ? 'OK' : '', error, started_at: AT, finished_at: '2030-01-01T00:00:01.500Z' },
  ...(error_code === undefined ? {} : { error_code, task_id: TASK }),
});

const JOB: WorkflowJob = {
  ...{ uuid: TASK, name: 'server-reboot', execution: 'running', server_uuid: TASK, target: '', params: {} },
  ...{ actor: 'alice', chain: [step('pause'), step('idle'), step('resume')], chain_results: [] },
  ...{ onerror: [step('resume')], onerror_results: [], created_at: AT, exec_after: AT, timeout: 900 },
  cancel_requested: false,
};
const at = (name: string, more: object = {}) => ({ waiting_for: { step: name, since: AT, tries: 0, ...more } });

t.test('the steps of a job: those that have ended, the present one, and those that follow if all goes well', (t) => {
  const rows: [string, Partial<WorkflowJob>, string[]][] = [
    ['the first', at('pause'), ['pause running', 'idle waiting', 'resume waiting']],
    [
      'one that is tried again',
      { ...at('pause', { tries: 1 }), chain_results: [end('pause', 'no', 'E')] },
      ['pause E', 'pause running', 'idle waiting', 'resume waiting'],
    ],
    [
      'an undo after a failure, which is a step of the chain, too',
      { ...at('resume'), chain_results: [end('pause'), end('idle', 'late', 'StepTimeout')] },
      ['pause OK', 'idle StepTimeout', 'undo: resume running'],
    ],
    [
      'an undo after a cancel before a step has begun',
      { ...at('resume'), chain_results: [end('pause')], cancel_requested: true },
      ['pause OK', 'undo: resume running'],
    ],
    [
      'a cancelled job whose step has not ended',
      { ...at('idle'), chain_results: [end('pause')], cancel_requested: true },
      ['pause OK', 'idle running'],
    ],
    [
      'undo steps that have ended',
      { execution: 'failed', chain_results: [end('pause', 'no', 'E')], onerror_results: [end('resume')] },
      ['pause E', 'undo: resume OK'],
    ],
    ['one that has ended', { execution: 'succeeded', chain_results: [end('pause')] }, ['pause OK']],
  ];
  for (const [name, more, expected] of rows)
    t.same(
      stepLines({ ...JOB, ...more }).map((line) => `${line.step} ${line.result}`),
      expected,
      name,
    );
  t.end();
});

t.test('ends of steps are said once, and undo steps are called so', (t) => {
  const job = {
    ...JOB,
    chain_results: [end('pause'), end('idle', 'no room', 'E'), end('idle', 'canceled', 'Canceled')],
    onerror_results: [end('resume')],
  };
  t.same(endLines(job, 1), [
    'idle: no room (E) after 1.5s; see cnapi task 4f7d3c52',
    'idle: canceled after 1.5s; see cnapi task 4f7d3c52',
    'undo: resume: OK after 1.5s',
  ]);
  t.same(endLines(job, 4), []);
  t.end();
});

t.test('what a job waits for, and how it ended', (t) => {
  const now = (waiting: object, more: Partial<WorkflowJob> = {}) =>
    presentLine({ ...JOB, ...at('idle', waiting), ...more });
  t.equal(now({ until: 'it is so' }), 'idle: waits until it is so');
  const task = { until: 'task x has ended', task: 'x' };
  t.equal(now(task), 'idle: begins its task x');
  t.equal(now({ ...task, task_id: TASK }), 'idle: waits for its task x (4f7d3c52)');
  t.equal(now({ task_id: TASK }), 'idle: waits for its task 4f7d3c52', 'an instance of an earlier version');
  t.equal(now({ tries: 2 }), 'idle (try 3): begun', 'an instance of an earlier version does not say what ends it');
  t.equal(now({}, { cancel_requested: true }), 'idle: begun; its cancel is requested');
  t.equal(presentLine(JOB), undefined);
  const chain_results = [end('idle'), end('pause', 'refused', 'NotAllowed')];
  const failing = { ...JOB, ...at('resume'), chain_results };
  t.equal(failureLine(failing), 'pause: refused (NotAllowed)', 'also while its undo steps run');
  t.equal(failureLine({ ...failing, ...at('pause', { tries: 1 }) }), undefined, 'it is tried again');
  t.equal(failureLine({ ...failing, chain_results: [end('idle', 'canceled', 'Canceled')] }), undefined);
  t.equal(endingOfJob({ ...JOB, execution: 'succeeded', elapsed: 90 }), 'server-reboot succeeded after 1m 30s');
  t.equal(
    endingOfJob({ ...JOB, execution: 'failed', elapsed: 2, chain_results }),
    'server-reboot failed after 2.0s: pause: refused (NotAllowed)',
  );
  t.equal(
    endingOfJob({ ...JOB, execution: 'canceled', elapsed: 2, canceled_by: 'bob' }),
    'server-reboot was cancelled by bob after 2.0s',
  );
  t.end();
});

import t from 'tap';
import { decideStepResult } from '../../../lib/control/workflows/task-end.ts';

const NEVER = { cancel_requested_at: null, started_at: null };
const STARTED = { ...NEVER, started_at: new Date() };
const failure = (code: string) => ({ outcome: 'failure' as const, error: { code, message: 'as it says' } });
const accepts = ['AgentRestarted', 'TaskTimeout'];

t.test('a step is done when its task succeeded, or failed in a way that the step accepts', async (t) => {
  t.same(decideStepResult({ ...STARTED, outcome: 'complete', error: null }, []), { isDone: true });
  t.same(decideStepResult({ ...STARTED, ...failure('AgentRestarted') }, accepts), {
    isDone: true,
    accepted: 'AgentRestarted',
  });
  t.same(decideStepResult({ ...NEVER, ...failure('AgentRestarted') }, accepts), {
    isDone: true,
    accepted: 'AgentRestarted',
  });
  t.match(decideStepResult({ ...STARTED, ...failure('RebootNotAllowed') }, accepts), {
    isDone: false,
    error: { code: 'RebootNotAllowed', message: 'as it says' },
  });
  t.match(decideStepResult({ ...STARTED, ...failure('AgentRestarted') }, []), { isDone: false, isFinal: false });
  const unknown = decideStepResult({ ...NEVER, ...failure('UnknownTask') }, accepts);
  t.match(unknown, { isDone: false, isFinal: true }, 'another try would end in the same way');
});

t.test('an overdue task that was cancelled counts as done only if it had begun', async (t) => {
  const cancelled = failure('Cancelled');
  t.same(decideStepResult({ ...STARTED, ...cancelled }, accepts), { isDone: true, accepted: 'TaskTimeout' });
  t.match(decideStepResult({ ...NEVER, ...cancelled }, accepts), { isDone: false, error: { code: 'TaskTimeout' } });
  const byCaller = { ...STARTED, ...cancelled, cancel_requested_at: new Date() };
  t.match(decideStepResult(byCaller, accepts), { isDone: false, error: { code: 'Cancelled' } });
});

t.test('a task that failed without an error has failed', async (t) => {
  t.match(decideStepResult({ ...STARTED, outcome: 'failure', error: null }, accepts), {
    isDone: false,
    error: { code: 'Failed' },
  });
});

import t from 'tap';
import { verdictOf } from '../../../lib/control/workflows/task-end.ts';

const NEVER = { cancel_requested_at: null, started_at: null };
const STARTED = { ...NEVER, started_at: new Date() };
const failure = (code: string) => ({ outcome: 'failure' as const, error: { code, message: 'as it says' } });
const accepts = ['AgentRestarted', 'TaskTimeout'];

t.test('a step is done when its task succeeded, or failed in a way that the step accepts', async (t) => {
  t.same(verdictOf({ ...STARTED, outcome: 'complete', error: null }, []), { isDone: true });
  t.same(verdictOf({ ...STARTED, ...failure('AgentRestarted') }, accepts), {
    isDone: true,
    accepted: 'AgentRestarted',
  });
  t.same(verdictOf({ ...NEVER, ...failure('AgentRestarted') }, accepts), { isDone: true, accepted: 'AgentRestarted' });
  t.match(verdictOf({ ...STARTED, ...failure('RebootNotAllowed') }, accepts), {
    isDone: false,
    error: { code: 'RebootNotAllowed', message: 'as it says' },
  });
  t.match(verdictOf({ ...STARTED, ...failure('AgentRestarted') }, []), { isDone: false, isFinal: false });
  const unknown = verdictOf({ ...NEVER, ...failure('UnknownTask') }, accepts);
  t.match(unknown, { isDone: false, isFinal: true }, 'another try would end in the same way');
});

t.test('an overdue task that was cancelled counts as done only if it had begun', async (t) => {
  const cancelled = failure('Cancelled');
  t.same(verdictOf({ ...STARTED, ...cancelled }, accepts), { isDone: true, accepted: 'TaskTimeout' });
  t.match(verdictOf({ ...NEVER, ...cancelled }, accepts), { isDone: false, error: { code: 'TaskTimeout' } });
  const byCaller = { ...STARTED, ...cancelled, cancel_requested_at: new Date() };
  t.match(verdictOf(byCaller, accepts), { isDone: false, error: { code: 'Cancelled' } });
});

t.test('a task that failed without an error has failed', async (t) => {
  t.match(verdictOf({ ...STARTED, outcome: 'failure', error: null }, accepts), {
    isDone: false,
    error: { code: 'Failed' },
  });
});

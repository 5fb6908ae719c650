import t from 'tap';
import { errorOf, exitCodeOf, hasSucceeded } from '../../../lib/cli/output/task-end.ts';

t.test('success, error text and exit code of a task are derived from its end', (t) => {
  t.ok(hasSucceeded({ status: 'complete', result: { exitCode: 0 } }));
  t.ok(hasSucceeded({ status: 'complete' }), 'a task that is not a command');
  const failures: [object, string][] = [
    [{ status: 'complete', result: { exitCode: 3 } }, 'exit code 3'],
    [{ status: 'complete', result: { exitCode: null, signal: 'SIGSEGV' } }, 'ended by SIGSEGV'],
    [{ status: 'failure', error: { code: 'TaskTimeout', message: 'too long' } }, 'too long (TaskTimeout)'],
  ];
  for (const [end, why] of failures) t.equal(errorOf(end as Record<string, unknown>), why);
  const codes: [object | undefined, number | undefined][] = [
    [{ exitCode: 3, signal: null }, 3],
    [{ exitCode: null, signal: 'SIGKILL' }, 137],
    [{ exitCode: null, signal: 'SIGTERM' }, 143],
    [{ exitCode: null, signal: 'constructor' }, 128],
    [{}, undefined],
    [undefined, undefined],
  ];
  for (const [result, code] of codes) t.equal(exitCodeOf(result), code, JSON.stringify(result));
  t.end();
});

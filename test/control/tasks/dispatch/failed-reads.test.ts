/** What becomes of a claimed task that could not be read. */
import t from 'tap';
import { failedReads } from '../../../../lib/control/tasks/dispatch/failed-reads.ts';
import { DatabaseBusyError } from '../../../../lib/platform/errors.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';

function setUp() {
  const logged: Record<string, unknown>[] = [];
  const done: string[] = [];
  const reads = failedReads<{ id: string }>({
    claimOf: ({ id }) => ({ id, attempt: 1, paramsBytes: 7 }),
    end: ({ id }) => done.push(`end ${id}`),
    forget: ({ id }) => done.push(`forget ${id}`),
    log: recordingLogger(logged),
  });
  return { done, logged, reads };
}

t.test('a task ends at its fifth unanswered read; slow reads and other tasks do not count', async (t) => {
  const { done, logged, reads } = setUp();
  const [task, other] = [{ id: 'x' }, { id: 'y' }];
  const unanswered = new DatabaseBusyError('unanswered');
  for (let read = 1; read < 5; read += 1) {
    t.notOk(reads.onBusy(task, unanswered, 0), `read ${read}`);
    t.notOk(reads.onBusy(task, new DatabaseBusyError('slow'), 0));
  }
  t.notOk(reads.onBusy(other, unanswered, 0));
  t.same([done, logged], [[], []]);
  t.ok(reads.onBusy(task, unanswered, 0));
  t.same(done, ['end x']);
  matchLists(t, logged, [{ level: 'warn', task: 'x', attempt: 1, params_bytes: 7 }]);
});

t.test('a task whose read the database refuses is left to the slow poll', async (t) => {
  const { done, logged, reads } = setUp();
  t.equal(reads.onRefused({ id: 'x' }, new Error('invalid page')), undefined);
  t.same(done, ['forget x']);
  matchLists(t, logged, [{ level: 'warn', task: 'x', reason: 'invalid page' }]);
});

/** Which refused changes may be sent again with the same signature. */
import t from 'tap';
import { mayBeSentAgain } from '../../../../lib/control/http/listener/request-signing.ts';
import { NoAccessError } from '../../../../lib/control/organizations/chef-errors.ts';
import { PushJobEndedError, TooManyPushJobsError } from '../../../../lib/control/push/push-errors.ts';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../../lib/platform/errors.ts';

const full = new TooManyPushJobsError({ inAll: 2, ofOrganization: 1 });

const rows: readonly [name: string, error: unknown, before: boolean, inHandler: boolean][] = [
  ['the database does not answer', new DatabaseUnavailableError(), true, false],
  ['the statement had no answer in time', new DatabaseBusyError('unanswered'), true, false],
  ['the statement was rolled back', new DatabaseBusyError('locked'), true, true],
  ['there is no room for another job', full, true, true],
  ['the caller may not do it', new NoAccessError('alice', 'not in the group'), false, false],
  ['the job has ended', new PushJobEndedError('a job'), false, false],
  ['a defect', new Error('a defect'), false, false],
];

for (const [name, error, before, inHandler] of rows)
  t.test(name, (t) => {
    t.equal(mayBeSentAgain(error, false), before, 'before the handler');
    t.equal(mayBeSentAgain(error, true), inHandler, 'in the handler');
    t.end();
  });

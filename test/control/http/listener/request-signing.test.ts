/** Which refusals let a signed change be repeated with the same signature. */
import t from 'tap';
import { isRefusedForNow } from '../../../../lib/control/http/listener/request-signing.ts';
import { NoAccessError } from '../../../../lib/control/organizations/organization-errors.ts';
import { PushJobEndedError, TooManyPushJobsError } from '../../../../lib/control/push/push-errors.ts';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../../lib/platform/errors.ts';

const rows: readonly [name: string, error: unknown, isForNow: boolean][] = [
  ['the statement was rolled back', new DatabaseBusyError('locked'), true],
  ['there is no room for another job', new TooManyPushJobsError({ inAll: 2, ofOrganization: 1 }), true],
  ['the database does not answer', new DatabaseUnavailableError(), false],
  ['the statement had no answer in time', new DatabaseBusyError('unanswered'), false],
  ['the caller may not do it', new NoAccessError('alice', 'not in the group'), false],
  ['the job has ended', new PushJobEndedError('a job'), false],
  ['a defect', new Error('a defect'), false],
];

for (const [name, error, isForNow] of rows)
  t.test(name, (t) => {
    t.equal(isRefusedForNow(error), isForNow);
    t.end();
  });

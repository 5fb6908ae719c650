/** What a caller receives whose wait cannot begin or go on at this instance. */
import t from 'tap';
import { TooManyWaitersError, WaitStoppedError } from '../../../lib/platform/waits/wait-errors.ts';

t.match(new TooManyWaitersError(9), {
  ...{ code: 'TooManyWaiters', statusCode: 503, message: /holds 9 waits/, retryAfterSeconds: 1 },
});
t.match(new WaitStoppedError('task', 'x'), {
  ...{ code: 'ServiceUnavailable', statusCode: 503, message: /wait for task x at another/, retryAfterSeconds: 1 },
});

/** What a caller receives who cannot follow the events: the code, the status, and advice. */
import t from 'tap';
import { TooManyFollowersError, UnknownEventError } from '../../../lib/control/events/event-errors.ts';
import { InstanceDrainingError } from '../../../lib/control/request-errors.ts';

t.match(new UnknownEventError('7-x'), { code: 'InvalidArgument', statusCode: 409, message: /^7-x is not the id/ });
t.match(new TooManyFollowersError(9), {
  ...{ code: 'TooManyFollowers', statusCode: 503, message: /has 9 followers/, retryAfterSeconds: 1 },
});
t.match(new InstanceDrainingError('follow events on another one', 1), {
  code: 'InstanceDraining',
  statusCode: 503,
  retryAfterSeconds: 1,
});

/** What a caller receives who asks something of an instance that cannot be done. */
import t from 'tap';
import { InstanceNotFoundError, LastInstanceError } from '../../../../lib/control/roster/membership/roster-errors.ts';

t.match(new InstanceNotFoundError('x'), { code: 'ResourceNotFound', statusCode: 404, message: /^No instance x is / });
t.match(new LastInstanceError('x'), { code: 'LastInstance', statusCode: 409, message: /start another one first/ });

/** Errors of requests about a server. */
import { CnapiError } from '../../platform/errors.ts';

export class ServerNotRunningError extends CnapiError {
  constructor(serverUuid: string, status: string) {
    super('ServerNotRunning', 409, 'Operation attempted on server which is not running', {
      errors: [{ field: 'server_uuid', code: 'Invalid', message: `server ${serverUuid} is ${status}` }],
    });
  }
}

/**
 * Reasons to refuse a caller. No message reveals anything that its caller did not know or could not
 * find out.
 */
import { CnapiError } from '../../platform/errors.ts';
import type { RequiredRole } from '../../protocol/api/contract/roles.ts';
import type { Actor } from './token.ts';

/** 401: no token, or no valid one. */
export class UnauthorizedError extends CnapiError {
  constructor(message: string) {
    super('Unauthorized', 401, message);
  }
}

/** 401: an admitted request, perhaps already begun, ends because its token has ended. */
export class TokenEndedError extends CnapiError {
  /** `taskId`: the task that the request has created, which continues. */
  constructor(taskId?: string) {
    const taskNote = taskId === undefined ? '' : `; task ${taskId} continues, and GET /tasks/${taskId} shows its end`;
    super('TokenEnded', 401, `The token was revoked, or has expired, meanwhile${taskNote}`);
  }
}

/** 403: a valid token whose role does not permit this. */
export class RoleTooSmallError extends CnapiError {
  constructor(actor: Actor, requiredRole: RequiredRole) {
    // Without a server an agent's token is valid for all of them.
    const forWhat = requiredRole === 'agent' ? ' --server SERVER' : '';
    super(
      'Forbidden',
      403,
      `This needs the role ${requiredRole}; ${JSON.stringify(actor.name)} has ${actor.roles.join(' and ')}. An admin makes another token: cnapi token create NAME --role ${requiredRole}${forWhat}. So does whoever can read an instance's configuration, with --config FILE, or --local for their npm start`,
    );
  }
}

/** 403: an agent's token that is valid for another server only. */
export class TokenOfAnotherServerError extends CnapiError {
  constructor(actor: Actor) {
    super(
      'Forbidden',
      403,
      `The token ${JSON.stringify(actor.name)} is good for server ${actor.serverUuid} only. An admin makes one for another server: cnapi token create NAME --role agent --server SERVER`,
    );
  }
}

/** 429: too many requests or connections from one source. */
export class TooManyRequestsError extends CnapiError {
  constructor(what: 'requests' | 'connections' | 'failed authentications', key: string, retryAfterSeconds: number) {
    super(
      'TooManyRequests',
      429,
      `Too many ${what} from this address; wait and try again (${key} in the configuration)`,
      {
        retryAfterSeconds,
      },
    );
  }
}

export class TokenNotFoundError extends CnapiError {
  constructor(uuid: string) {
    super('ResourceNotFound', 404, `Token ${uuid} not found`);
  }
}

/** Tokens that are not revoked have unique names, so the audit's names are unambiguous. */
export class TokenNameTakenError extends CnapiError {
  constructor(name: string) {
    super(
      'TokenNameTaken',
      409,
      `There is a token named ${JSON.stringify(name)}; revoke it first, or choose another name`,
    );
  }
}

export class BadTokenNameError extends CnapiError {
  constructor(name: string, reason: string) {
    super('InvalidParameters', 400, `The name ${JSON.stringify(name.slice(0, 100))} ${reason}`);
  }
}

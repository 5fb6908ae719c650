/** Refusals of requests about organizations, with the statuses and texts of Chef. */
import { CnapiError } from '../../platform/errors.ts';

/** 403: not in the group that this needs. */
export class NoAccessError extends CnapiError {
  constructor(name: string, reason: string) {
    super(
      'Forbidden',
      403,
      `User or client '${name}' does not have access to that action on this server. Rule: ${reason}`,
    );
  }
}

export class OrganizationNotFoundError extends CnapiError {
  constructor(name: string) {
    super('ResourceNotFound', 404, `organization '${name}' does not exist.`);
  }
}

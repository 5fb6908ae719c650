/** What the annealer refuses, and why. All are 409: the request is right, the state is not. */
import { CnapiError } from '../../platform/errors.ts';

/** The role cannot be bound to any server as it is. */
export class RoleNotBindableError extends CnapiError {
  constructor(role: string, reason: string) {
    super('RoleNotBindable', 409, `role ${role} cannot be bound: ${reason}`);
  }
}

/** The server has a role that excludes this one. */
export class ConflictingRolesError extends CnapiError {
  constructor(role: string, other: string, serverUuid: string) {
    super(
      'ConflictingRoles',
      409,
      `role ${role} cannot be bound to server ${serverUuid}: it conflicts with role ${other} there`,
    );
  }
}

export class TooManyNoderolesError extends CnapiError {
  /** `limit`: which one, in words. */
  constructor(limit: string) {
    super('TooManyNoderoles', 409, `That would be too many noderoles: ${limit}`);
  }
}

/** Several plans in a row were made for a graph that changed before they were stored. */
export class NoderolesChangedError extends CnapiError {
  constructor() {
    super('NoderolesChanged', 409, 'Other requests changed the graph at the same moment; try again');
  }
}

/** Names the noderole, its state, and what stands in the way. */
export class NoderoleTransitionError extends CnapiError {
  constructor(noderole: string, state: string, reason: string) {
    super('NoderoleTransition', 409, `noderole ${noderole} is ${state} and cannot become todo: ${reason}`);
  }
}

export class NoderoleInUseError extends CnapiError {
  constructor(noderole: string, reason: string) {
    super('NoderoleInUse', 409, `noderole ${noderole} cannot be deleted: ${reason}`);
  }
}

/** A role that noderoles have, or a deployment that has some, cannot be deleted. */
export class DefinitionInUseError extends CnapiError {
  constructor(what: string, name: string) {
    super('DefinitionInUse', 409, `${what} ${name} has noderoles; delete them first`);
  }
}

/**
 * What the callers of containers can act on. A task of the agent ends with its code and message.
 */
import { CnapiError, type FieldError } from '../../platform/errors.ts';
import type { ContainerRefusal, ContainerState } from './lifecycle.ts';

/** The container could not be made, started or removed; the message says why. */
export class ContainerError extends CnapiError {
  constructor(message: string, cause?: unknown) {
    super('ContainerFailed', 500, message, { cause });
  }
}

/** The specification is invalid; the message names each wrong field. */
export class InvalidContainerSpecError extends CnapiError {
  constructor(errors: FieldError[]) {
    const sentences = errors.map(({ field, message }) => `${field} ${message}`).join('. ');
    super('InvalidParameters', 400, `The container cannot be created. ${sentences}`, { errors });
  }
}

export class ContainerNotFoundError extends CnapiError {
  constructor(id: string) {
    super('ResourceNotFound', 404, `There is no container ${id} on this server`);
  }
}

/** The record of the container cannot be read, so its state is unknown: it may be running. */
export class ContainerBusyError extends CnapiError {
  constructor(id: string, reason: string) {
    super(
      'ContainerBusy',
      409,
      `Container ${id} is left as it is: its record cannot be read (${reason}); repair the record and restart the agent`,
    );
  }
}

/** A container with this id and other properties exists. */
export class ContainerExistsError extends CnapiError {
  constructor(id: string) {
    super('ContainerExists', 409, `Container ${id} exists already, with other properties; delete it first`);
  }
}

/** No container can run on this server, or by this agent; the message says why. */
export class NoContainersError extends CnapiError {
  constructor(reason: string) {
    super('NoContainers', 409, reason);
  }
}

export class TooManyContainersError extends CnapiError {
  constructor(max: number) {
    super('TooManyContainers', 409, `This server has the maximum of ${max} containers; delete one first`);
  }
}

const SENTENCES: Readonly<Record<ContainerRefusal, string>> = {
  'is-creating': 'is still being created; wait until it is created',
  'is-starting': 'is starting; wait until it runs',
  'is-running': 'is running; stop it first',
  'is-stopping': 'is being stopped; wait until it has stopped',
  'is-not-running': 'does not run; start it first',
  'has-failed': 'could not be created; delete it',
  'is-deleting': 'is being deleted',
};

/** The container cannot do this in its state. */
export class ContainerStateError extends CnapiError {
  constructor(id: string, refusal: ContainerRefusal, state: ContainerState) {
    const reason = state.name === 'failed' ? ` (${state.reason})` : '';
    super('InvalidContainerState', 409, `Container ${id} ${SENTENCES[refusal]}${reason}`);
  }
}

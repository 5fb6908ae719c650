/**
 * What those who install packages can act on. A task of the agent ends with the code and the
 * message.
 */
import { CnapiError } from '../../platform/errors.ts';
import { LayerError } from '../containers/layers/layer-error.ts';
import { toSpaceError } from '../images/archive-file.ts';
import {
  ImageSourceError,
  ImageSourceNotAllowedError,
  InvalidImageError,
  NoImageSpaceError,
} from '../images/image-errors.ts';

/** What arrived is not a package that this agent can use. Nothing of it is kept. */
export class InvalidPackageError extends CnapiError {
  constructor(message: string, cause?: unknown) {
    super('InvalidPackage', 422, `The package is refused: ${message}`, { cause });
  }
}

/** No key that this agent trusts has signed it. */
export class UntrustedPackageError extends CnapiError {
  constructor() {
    super('PackageNotTrusted', 403, 'The package is refused: no key that this agent trusts (--package-key) signed it');
  }
}

/** The package cannot be installed here as things are. */
export class PackageRefusedError extends CnapiError {
  constructor(code: string, message: string) {
    super(code, 409, message);
  }
}

/** The agent has ended each time that it installed the package. */
export class TooManyStartsError extends CnapiError {
  constructor() {
    super(
      'OutcomeUnknown',
      500,
      'The agent has ended three times while it installed this package; if its program install restarts the agent, change that. Whether it has done its work is unknown',
    );
  }
}

/** The new version of the agent did not start to work, and the former version runs again. */
export class RolledBackError extends CnapiError {
  constructor(version: string, from: string, reason: string) {
    super('AgentRolledBack', 500, `Version ${version} did not come up, and ${from} runs again: ${reason}`);
  }
}

class PackageSourceError extends CnapiError {}

/** Images arrive in the same way, so their errors are translated. */
export function toPackageError(error: unknown): unknown {
  if (error instanceof InvalidImageError || error instanceof LayerError)
    return new InvalidPackageError(error.message.replace(/^.*? is refused: /, ''), error);
  if (error instanceof ImageSourceNotAllowedError) return sourceError('PackageSourceNotAllowed', error);
  if (error instanceof ImageSourceError) return sourceError('PackageSourceFailed', error);
  const full = error instanceof NoImageSpaceError ? error : toSpaceError(error);
  if (full !== undefined)
    return new PackageSourceError('NoPackageSpace', 507, 'The disk has no room for this package; free some space', {
      cause: full,
    });
  return error;
}

const sourceError = (code: string, cause: CnapiError): PackageSourceError =>
  new PackageSourceError(
    code,
    cause.statusCode,
    cause.message.replaceAll('--image-', '--package-').replace(/^url: /, 'package_file: '),
    { cause },
  );

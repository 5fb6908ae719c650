/** What those who ask for images can act on. A task of the agent ends with its code and message. */
import { CnapiError } from '../../platform/errors.ts';

export class ImageNotFoundError extends CnapiError {
  constructor(uuid: string) {
    super('ImageNotFound', 404, `There is no image ${uuid} on this server; load it first (image_ensure_present)`);
  }
}

/** What arrived is not an image that this server can use. Nothing of it is kept. */
export class InvalidImageError extends CnapiError {
  constructor(message: string, cause?: unknown) {
    super('InvalidImage', 422, `The image is refused: ${message}`, { cause });
  }
}

/** The configuration of the agent does not allow this source. */
export class ImageSourceNotAllowedError extends CnapiError {
  constructor(message: string) {
    super('ImageSourceNotAllowed', 403, message);
  }
}

/**
 * The source did not give the image, or not all of it. What has arrived is kept, and the next
 * attempt continues.
 */
export class ImageSourceError extends CnapiError {
  constructor(message: string, cause?: unknown) {
    super('ImageSourceFailed', 502, message, { cause });
  }
}

export class NoImageSpaceError extends CnapiError {
  constructor(message: string, cause?: unknown) {
    super('NoImageSpace', 507, message, { cause });
  }
}

export class ImageInUseError extends CnapiError {
  constructor(uuid: string, containerId: string) {
    super('ImageInUse', 409, `Image ${uuid} is used by container ${containerId}; delete that first`);
  }
}

export class ImageExistsError extends CnapiError {
  constructor(uuid: string, reason = 'exists already; choose another uuid') {
    super('ImageExists', 409, `Image ${uuid} ${reason}`);
  }
}

export class ImageBusyError extends CnapiError {
  constructor(uuid: string, message = `Image ${uuid} is being loaded or deleted; try again when that has ended`) {
    super('ImageBusy', 409, message);
  }
}

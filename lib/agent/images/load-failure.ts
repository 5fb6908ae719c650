/** Why an image could not be loaded, as callers and its record have it. */
import { CnapiError, messageOf } from '../../platform/errors.ts';
import { LayerError } from '../containers/layers/layer-error.ts';
import { toSpaceError } from './archive-file.ts';
import { ImageSourceError, InvalidImageError, NoImageSpaceError } from './image-errors.ts';

/** Something with a code and a sentence. */
export function toLoadFailure(error: unknown, signal: AbortSignal): CnapiError {
  if (signal.aborted) return new ImageSourceError(`it was given up: ${messageOf(signal.reason)}`, error);
  if (error instanceof CnapiError && error.cause instanceof NoImageSpaceError) return error.cause;
  if (error instanceof LayerError) return new InvalidImageError(error.message, error);
  return toSpaceError(error) ?? (error instanceof CnapiError ? error : new ImageSourceError(messageOf(error), error));
}

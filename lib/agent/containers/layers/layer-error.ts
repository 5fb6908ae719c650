import { CnapiError } from '../../../platform/errors.ts';

/** The archive of a layer is wrong and was refused as a whole; nothing of it is left. */
export class LayerError extends CnapiError {
  constructor(message: string, cause?: unknown) {
    super('InvalidLayer', 422, `The archive of the layer is refused: ${message}`, { cause });
  }
}

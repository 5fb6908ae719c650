/** Why there is no server for a VM, under the codes of Triton's CNAPI. */
import { CnapiError } from '../../platform/errors.ts';

export class NoAllocatableServersError extends CnapiError {
  constructor(reason: string) {
    super('NoAllocatableServersError', 409, `No compute resources available: ${reason}`);
  }
}

export class VolumeServerNoResourcesError extends CnapiError {
  constructor(reason: string) {
    super('VolumeServerNoResourcesError', 409, `No server with the required volumes: ${reason}`);
  }
}

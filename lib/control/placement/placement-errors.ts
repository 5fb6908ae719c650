/** Why there is no server for a VM, under the codes of Triton's CNAPI. */
import { CnapiError } from '../../platform/errors.ts';

export class NoAllocatableServersError extends CnapiError {
  constructor(reason: string) {
    super('NoAllocatableServersError', 409, `No compute resources available: ${reason}`);
  }
}

/** 429: this caller holds as much room as it may. */
export class TooManyClaimsError extends CnapiError {
  constructor(limit: number) {
    super(
      'TooManyClaims',
      429,
      `This caller holds room for ${limit} VMs, as many as it may (placementClaimsPerCaller in the configuration); try again when some of these claims have expired, or ask for fewer VMs at a time`,
    );
  }
}

export class VolumeServerNoResourcesError extends CnapiError {
  constructor(reason: string) {
    super('VolumeServerNoResourcesError', 409, `No server with the required volumes: ${reason}`);
  }
}

/**
 * Memory for request bodies that are being received. Each counts the bytes that have arrived, and
 * what it may become when it is decompressed. So nobody can fill the memory of an instance with
 * bodies that never end. Owned by the listener.
 */
import { MIB } from '../../../platform/byte-units.ts';
import { CnapiError } from '../../../platform/errors.ts';
import { MemoryBudget } from '../../../platform/limiting/memory-budget.ts';

const LIMITS = { maxBytes: 128 * MIB, maxBytesPerCaller: 32 * MIB };

export function bodyMemory(): MemoryBudget {
  return new MemoryBudget({
    ...LIMITS,
    full: (maxBytes) =>
      new CnapiError(
        'ServiceUnavailable',
        503,
        `This instance is receiving ${maxBytes / MIB} MiB of bodies, its maximum; try again, or another instance`,
        { retryAfterSeconds: 1 },
      ),
    shareFull: (maxBytes) =>
      new CnapiError(
        'TooManyRequests',
        429,
        `This instance is receiving ${maxBytes / MIB} MiB of bodies from this caller, the maximum; send fewer at a time`,
        { retryAfterSeconds: 1 },
      ),
  });
}

/**
 * Memory for request bodies that are being received. Each counts the bytes that have arrived, and
 * what it may become when it is decompressed. So nobody can fill the memory of an instance with
 * bodies that never end. Owned by the listener.
 */
import { CnapiError } from '../../../platform/errors.ts';
import { MemoryBudget } from '../../../platform/limiting/memory-budget.ts';

const MEBIBYTE = 1024 * 1024;
const LIMITS = { maxBytes: 128 * MEBIBYTE, maxBytesPerCaller: 32 * MEBIBYTE };

export function bodyMemory(): MemoryBudget {
  return new MemoryBudget({
    ...LIMITS,
    full: (maxBytes) =>
      new CnapiError(
        'ServiceUnavailable',
        503,
        `This instance is receiving ${maxBytes / MEBIBYTE} MiB of bodies, its maximum; try again, or another instance`,
        { retryAfterSeconds: 1 },
      ),
    shareFull: (maxBytes) =>
      new CnapiError(
        'TooManyRequests',
        429,
        `This instance is receiving ${maxBytes / MEBIBYTE} MiB of bodies from this caller, the maximum; send fewer at a time`,
        { retryAfterSeconds: 1 },
      ),
  });
}

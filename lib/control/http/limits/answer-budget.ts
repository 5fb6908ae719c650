/**
 * Memory for answers. Every answer counts its bytes here while this instance holds them: read,
 * serialized, not yet taken by the network. The instance has one budget, and each caller a share of
 * it. Beyond either, a request is refused with a Retry-After. So neither many callers nor a
 * slow one can exhaust the heap. Owned by the listener.
 */
import { CnapiError } from '../../../platform/errors.ts';
import { MemoryBudget, type MemoryLimits } from '../../../platform/limiting/memory-budget.ts';

/** 503: this instance has reached its limit for all answers. */
export class AnswerMemoryFullError extends CnapiError {
  constructor(maxBytes: number) {
    const message = `This instance already holds ${mebibytes(maxBytes)} MiB of answers (answerMemoryMiB); ask again shortly, or another instance`;
    super('AnswerMemoryFull', 503, message, { retryAfterSeconds: 1 });
  }
}

/** 429: one caller's answers have reached its share. */
export class AnswerShareFullError extends CnapiError {
  constructor(maxBytes: number) {
    const message = `This instance already holds ${mebibytes(maxBytes)} MiB of answers for this caller (answerMemoryPerCallerMiB); read them, and ask again`;
    super('AnswerShareFull', 429, message, { retryAfterSeconds: 1 });
  }
}

const mebibytes = (bytes: number): number => Math.round(bytes / 1024 / 1024);

export function answerBudget(limits: MemoryLimits): MemoryBudget {
  return new MemoryBudget({
    ...limits,
    full: (maxBytes) => new AnswerMemoryFullError(maxBytes),
    shareFull: (maxBytes) => new AnswerShareFullError(maxBytes),
  });
}

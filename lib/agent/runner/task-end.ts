/**
 * Builds the frame that reports the end of an attempt, and cuts it to what a session takes. Pure.
 */
import { countJsonValues, JsonLimitError } from '../../protocol/json/bounded-json.ts';
import { toStorableText } from '../../protocol/json/storable.ts';
import { MAX_FRAME_DEPTH, MAX_RESULT_VALUES } from '../../protocol/limits.ts';
import { encodeFrame } from '../../protocol/link/codec.ts';
import type { TaskEndFrame } from '../../protocol/link/frames.ts';
import { KeptOutput } from '../output/output.ts';
import type { TaskFailure } from '../task-failure.ts';

export interface Attempt {
  id: string;
  attempt: number;
}

export function endComplete(attempt: Attempt, result: Record<string, unknown>, reportedAt: string): TaskEndFrame {
  return { type: 'task_end', id: attempt.id, attempt: attempt.attempt, outcome: 'complete', result, reportedAt };
}

export function endFailure({ id, attempt }: Attempt, failure: TaskFailure, reportedAt: string): TaskEndFrame {
  const error = { code: failure.code, message: toStorableText(failure.message.slice(0, 4000)) };
  const result = failure.result ? { result: failure.result } : {};
  return { type: 'task_end', id, attempt, outcome: 'failure', ...result, error, reportedAt };
}

/**
 * Cuts strings of the result in the middle until the frame fits; drops a result that still does not
 * fit.
 */
export function fitEnd(end: TaskEndFrame, maxBytes: number): TaskEndFrame {
  if (!hasFewValues(end)) return withoutResult(end, `it had more than ${MAX_RESULT_VALUES} values`);
  let kept = MAX_TEXT_BYTES;
  let fitted = end;
  while (Buffer.byteLength(encodeFrame(fitted)) > maxBytes) {
    if (kept < SHORTEST_TEXT_BYTES) return withoutResult(end, 'it was too large');
    const result = Object.entries(end.result ?? {}).map(([key, value]) => [key, shortened(value, kept)]);
    fitted = { ...end, result: Object.fromEntries(result) };
    kept /= 2;
  }
  return fitted;
}

function withoutResult(end: TaskEndFrame, reason: string): TaskEndFrame {
  return { ...end, result: { truncated: true, message: `the result was not kept: ${reason}` } };
}

/** An instance does not keep the result of an end with more values. */
function hasFewValues(end: TaskEndFrame): boolean {
  try {
    return countJsonValues(encodeFrame(end), { maxValues: MAX_RESULT_VALUES, maxDepth: MAX_FRAME_DEPTH }) > 0;
  } catch (error) {
    if (error instanceof JsonLimitError) return false;
    throw error;
  }
}

const MAX_TEXT_BYTES = 1024 * 1024;
const SHORTEST_TEXT_BYTES = 64;

function shortened(value: unknown, maxBytes: number): unknown {
  return typeof value === 'string' ? truncateMiddle(value, maxBytes) : value;
}

/** Keeps the first and the last half of `maxBytes` and marks the cut. */
export function truncateMiddle(text: string, maxBytes: number): string {
  if (Buffer.byteLength(text) <= maxBytes) return text;
  const kept = new KeptOutput(maxBytes);
  kept.add(Buffer.from(text));
  return kept.text();
}

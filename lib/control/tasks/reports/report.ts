/**
 * An agent's report about an attempt, as the recorder keeps and stores it. Pure: made from frames,
 * measured. A result is converted to text immediately: it is stored as text, the text has a
 * known size, and the parsed object (an agent can make it a hundred times larger in memory) is kept
 * no longer than its frame.
 */

import type { JsonObject } from '../../../protocol/json/bounded-json.ts';
import { toStorableText } from '../../../protocol/json/storable.ts';
import { MAX_FRAME_BYTES } from '../../../protocol/limits.ts';
import type { TaskEndFrame, TaskEventFrame } from '../../../protocol/link/frames.ts';
import type { OutputChannel } from '../../../protocol/output-streams.ts';
import type { TaskError } from '../store/task.ts';

/** The task and attempt of a report, and the server whose agent sent it. */
export interface ReportSubject {
  id: string;
  serverUuid: string;
  attempt: number;
}

export type EventReport =
  | { name: 'accepted' | 'started'; reportedAt: string }
  | { name: 'progress'; reportedAt: string; value: number; message: string | undefined }
  | { name: 'output'; reportedAt: string; stream: OutputChannel; offset: number; text: string; bytes: number };

export type EndReport =
  | { name: 'complete'; reportedAt: string; resultJson: string | undefined }
  | { name: 'failure'; reportedAt: string; resultJson: string | undefined; error: TaskError };

export type Report = EventReport | EndReport;

/**
 * A more deeply nested result is not kept: printing it would overflow a stack here, or the
 * database's.
 */
const MAX_LEVELS = 100;
/** Memory of a report beside its texts, including everything that is kept around it. */
const REPORT_SIZE = 1000;

export function toEvent({ event }: TaskEventFrame): EventReport {
  switch (event.name) {
    case 'accepted':
    case 'started':
      return { name: event.name, reportedAt: event.reportedAt };
    case 'progress':
      return { name: 'progress', reportedAt: event.reportedAt, value: event.value, message: event.message };
    case 'output':
      return { ...event, bytes: Buffer.byteLength(event.text) };
    default:
      return event satisfies never;
  }
}

/**
 * The end as the agent reported it. A result that cannot be kept is replaced by one that states
 * why; the end is unchanged. The statements of push jobs read the error, so it must be storable; a
 * result is stored as text that no statement reads.
 */
export function toEnd({ outcome, reportedAt, result, error }: TaskEndFrame): EndReport {
  const resultJson = result === undefined ? undefined : resultText(result);
  if (outcome === 'complete') return { name: 'complete', reportedAt, resultJson };
  const { code, message } = error ?? { code: 'Failed', message: 'no error given' };
  return {
    name: 'failure',
    reportedAt,
    resultJson,
    error: { code: toStorableText(code), message: toStorableText(message) },
  };
}

/** The same end without the agent's result. */
export function withoutResult(end: EndReport, reason: string): EndReport {
  return { ...end, resultJson: notKept(reason) };
}

/** Approximate number of bytes that it takes in memory. */
export function sizeOf(report: Report): number {
  switch (report.name) {
    case 'accepted':
    case 'started':
      return REPORT_SIZE;
    case 'progress':
      return REPORT_SIZE + (report.message?.length ?? 0);
    case 'output':
      return REPORT_SIZE + report.bytes;
    case 'complete':
      return REPORT_SIZE + (report.resultJson?.length ?? 0);
    case 'failure':
      return REPORT_SIZE + (report.resultJson?.length ?? 0) + report.error.message.length;
    default:
      return report satisfies never;
  }
}

function resultText(result: JsonObject): string {
  if (isDeeperThan(result, MAX_LEVELS)) return notKept(`it was nested more than ${MAX_LEVELS} levels deep`);
  const text = JSON.stringify(result);
  return text.length <= MAX_FRAME_BYTES ? text : notKept(`it was ${text.length} characters long`);
}

const notKept = (reason: string): string =>
  JSON.stringify({ truncated: true, message: `the result was not kept: ${reason}` });

function isDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (levels === 0) return true;
  const parts: unknown[] = Array.isArray(value) ? value : Object.values(value);
  return parts.some((part) => isDeeperThan(part, levels - 1));
}

/** SQL that stores agents' reports about tasks: one statement for many reports of many tasks. */
import type { Queryable } from '../../../platform/postgres/database.ts';
import { MAX_OUTPUT_BYTES } from '../../../protocol/limits.ts';
import { toWritten, type WrittenRow, type WrittenTasks } from '../store/change-result.ts';
import type { Report, ReportSubject } from './report.ts';

/** Keeps the first half and the last half of each output stream, and a limited number of pieces. */
interface OutputBounds {
  halfBytes: number;
  halfPieces: number;
}

const defaultBounds: OutputBounds = { halfBytes: MAX_OUTPUT_BYTES / 2, halfPieces: 5_000 };

/** A report of an attempt. */
export interface AttemptReport {
  subject: ReportSubject;
  report: Report;
  /** Whether the report may be stored already, because the answer to its statement was lost. */
  isRepeated?: boolean;
}

/**
 * Stores reports in the order given; skips those that are not for the present attempt. If some
 * reports are repeated, all of their tasks count as changed.
 */
export async function recordReports(
  database: Queryable,
  reports: readonly AttemptReport[],
  bounds: OutputBounds = defaultBounds,
): Promise<WrittenTasks> {
  const { rows } = await database.query<WrittenRow>(
    `select id, what from cnapi_record_task_reports($1::uuid[], $2::uuid[], $3::int[], $4::text[], $5::text[], $6::text[],
       $7::text[], $8::text[], $9::bigint[], $10::int[], $11::int, $12::int, $13::boolean[])`,
    valuesOf(reports, bounds),
    { name: 'record reports' },
  );
  return toWritten(rows);
}

function valuesOf(reports: readonly AttemptReport[], bounds: OutputBounds): unknown[] {
  return [
    reports.map(({ subject }) => subject.id),
    reports.map(({ subject }) => subject.serverUuid),
    reports.map(({ subject }) => subject.attempt),
    reports.map(({ report }) => report.name),
    reports.map(({ report }) => report.reportedAt.replaceAll('\0', '')),
    reports.map(({ report }) => json(dataOf(report))),
    reports.map(({ report }) => ('resultJson' in report ? (report.resultJson ?? null) : null)),
    reports.map(({ report }) => (report.name === 'output' ? report.stream : null)),
    reports.map(({ report }) => (report.name === 'output' ? report.offset : null)),
    reports.map(({ report }) => (report.name === 'output' ? report.bytes : 0)),
    bounds.halfBytes,
    bounds.halfPieces,
    reports.some(({ isRepeated }) => isRepeated) ? reports.map(({ isRepeated }) => isRepeated === true) : null,
  ];
}

/** The data of the report's event; for an end, its error. */
function dataOf(report: Report): object | undefined {
  switch (report.name) {
    case 'accepted':
    case 'started':
    case 'complete':
      return undefined;
    case 'progress':
      return { value: report.value, message: report.message };
    case 'output':
      return { stream: report.stream, offset: report.offset, text: report.text };
    case 'failure':
      return report.error;
    default:
      return report satisfies never;
  }
}

const json = (value: object | undefined): string | null => (value === undefined ? null : JSON.stringify(value));

/** Parses and formats durations and times for people. Pure. */
import { isDate } from '../../protocol/date.ts';
import { UsageError } from './command-errors.ts';

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Parses `90s`, `10m`, `1h30m`, `500ms` or `90` (seconds) to milliseconds. @throws UsageError */
export function parseDuration(text: string, option: string): number {
  if (/^\d+(\.\d+)?$/.test(text)) return Math.round(Number(text) * 1000);
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text))
    throw new UsageError(
      `${option} ${text} is not a duration such as 90s, 10m, 1h30m or 2d; a number alone is seconds`,
    );
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)];
  return Math.round(parts.reduce((sum, [, count, unit]) => sum + Number(count) * (UNIT_MS[unit ?? ''] ?? 0), 0));
}

/** Formats the two largest units: `2d 3h`, `5m 10s`, `1.2s`. */
export function shortDuration(ms: number): string {
  if (!Number.isFinite(ms)) return '-';
  if (ms < 10_000) return `${(Math.max(0, ms) / 1000).toFixed(1)}s`;
  const seconds = Math.round(ms / 1000);
  const [d, h, m, s] = [
    Math.floor(seconds / 86_400),
    Math.floor(seconds / 3600) % 24,
    Math.floor(seconds / 60) % 60,
    seconds % 60,
  ];
  if (d > 0) return `${d}d ${h}h`;
  if (h > 0) return `${h}h ${m}m`;
  return m > 0 ? `${m}m ${s}s` : `${s}s`;
}

/** Formats as `2030-01-01 00:00:00Z`; returns other text unchanged. */
export function shortTime(iso: string | null | undefined): string {
  if (!iso) return '-';
  const [, date, time] = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z$/.exec(iso) ?? [];
  return date === undefined ? iso : `${date} ${time}Z`;
}

/** Parses ISO 8601, or a duration before now: `2h`. @throws UsageError */
export function parseTime(text: string, option: string, wallTime: number): string {
  if (/^\d{4}-\d\d-\d\d/.test(text) && isDate(text.slice(0, 10)) && !Number.isNaN(Date.parse(text)))
    return new Date(Date.parse(text)).toISOString();
  try {
    return new Date(wallTime - parseDuration(text, option)).toISOString();
  } catch {
    throw new UsageError(`${option} ${text} is neither a time such as 2030-01-31T12:00:00Z nor a duration such as 2h`);
  }
}

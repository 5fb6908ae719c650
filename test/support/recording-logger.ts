/** A logger that keeps its records, at info and above, for a test to read. */
import type { Logger } from '../../lib/platform/log.ts';

export function recordingLogger(records: Record<string, unknown>[], bound: Record<string, unknown> = {}): Logger {
  const at = (level: string) => (fields: unknown, message?: unknown) => {
    const record = typeof fields === 'object' ? { ...bound, ...fields, msg: message } : { ...bound, msg: fields };
    records.push({ level, ...record });
    return true;
  };
  const logger = {
    trace: () => false,
    debug: () => false,
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    fatal: at('fatal'),
    level: () => 30,
    child: (fields: Record<string, unknown>) => recordingLogger(records, { ...bound, ...fields }),
  };
  return logger as unknown as Logger;
}

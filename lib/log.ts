/** The process's log: bunyan records, one JSON line each. Each transition is logged once, by its driver. */
import bunyan from 'bunyan';

export type Logger = Pick<bunyan, 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal' | 'level'> & {
  child(fields: Record<string, unknown>): Logger;
};

/** A logger named `name` that writes to stdout; `level` is a bunyan level name or number. */
export function createLogger(
  name: string,
  level: bunyan.LogLevel = 'info',
  fields: Record<string, unknown> = {},
): Logger {
  return bunyan.createLogger({
    name,
    level,
    ...fields,
    serializers: { err: bunyan.stdSerializers.err },
  }) as unknown as Logger;
}

/** A logger that keeps quiet, for tests and tools. */
export const silentLogger: Logger = createLogger('silent', bunyan.FATAL + 1);

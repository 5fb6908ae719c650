/**
 * The process's log: bunyan records, one JSON line each. Each transition is logged once, by its driver.
 *
 * Fields are snake_case, as bunyan's own and the REST API's are; the compiler refuses a capital in one. One word stands for one
 * thing in every log, so that an instance's lines and an agent's are found together: `server_uuid`, `task` (its id, `tasks` for
 * those of several), `attempt`, `req_id`, `run`, `epoch`. `err` is an error with its stack, `reason` the message of one.
 */
import bunyan from 'bunyan';

export type LogFields = Readonly<Record<Lowercase<string>, unknown>>;

interface Write {
  (message: string): void;
  (fields: LogFields, message: string): void;
}

export type Logger = Record<'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal', Write> &
  Pick<bunyan, 'level'> & { child(fields: LogFields): Logger };

/** A logger named `name` that writes to stdout; `level` is a bunyan level name or number. */
export function createLogger(name: string, level: bunyan.LogLevel = 'info', fields: LogFields = {}): Logger {
  return bunyan.createLogger({
    name,
    level,
    ...fields,
    serializers: { err: bunyan.stdSerializers.err },
  }) as unknown as Logger;
}

/** A logger that keeps quiet, for tests and tools. */
export const silentLogger: Logger = createLogger('silent', bunyan.FATAL + 1);

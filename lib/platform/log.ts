/**
 * The process's log: bunyan records, one JSON line each. Each transition is logged once, by its
 * driver.
 *
 * Fields are snake_case, like bunyan's own and the REST API's; the compiler refuses capital
 * letters. One word has one meaning in every log, so the lines of an instance and of an agent can
 * be searched together: `server_uuid`, `task` (its id; `tasks` for several), `attempt`, `req_id`,
 * `run`, `epoch`. `err` is an error with its stack, `reason` is an error's message.
 */
import bunyan from 'bunyan';

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export type LogFields = Readonly<Record<Lowercase<string>, unknown>>;

interface Write {
  (message: string): void;
  (fields: LogFields, message: string): void;
}

export type Logger = Record<LogLevel, Write> & Pick<bunyan, 'level'> & { child(fields: LogFields): Logger };

/**
 * Creates a logger named `name` that writes to stdout; `level` is a bunyan level name or number.
 */
export function createLogger(name: string, level: bunyan.LogLevel = 'info', fields: LogFields = {}): Logger {
  return bunyan.createLogger({
    name,
    level,
    ...fields,
    serializers: { err: bunyan.stdSerializers.err },
  }) as unknown as Logger;
}

/** A logger that writes nothing, for tests and tools. */
export const silentLogger: Logger = createLogger('silent', bunyan.FATAL + 1);

const MAX_FIELD_CHARS = 200;

/** Cuts text that a caller supplied to the length of a log field. */
export function cutForLog(text: string): string {
  if (text.length <= MAX_FIELD_CHARS) return text;
  return `${text.slice(0, MAX_FIELD_CHARS)}… (${text.length} characters)`;
}

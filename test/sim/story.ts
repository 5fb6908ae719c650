/**
 * What happened, a line each, in virtual time, and a digest of all of it to compare two runs of one
 * seed. It is also the log of every simulated process: log lines of the product appear here, and an
 * unexpected error is a defect.
 */
import { createHash } from 'node:crypto';
import { isTemporary, messageOf } from '../../lib/platform/errors.ts';
import type { Logger } from '../../lib/platform/log.ts';
import { SIMULATED } from './sim-duty.ts';
import type { VirtualTime } from './virtual-time.ts';

const KEPT_LINES = 4_000;
/** Messages logged as errors that are the fault of the world. */
const EXPECTED_ERRORS = /^(instance: healthy -> unhealthy|duty: several holders in a row died.*)$/;
const WORK_FAILED = 'duty: work failed';

export interface StoryDeps {
  time: VirtualTime;
  /** Called for each line as well, including the small ones (frames, statements). */
  trace?: ((line: string) => void) | undefined;
  unexpected: (who: string, error: unknown) => void;
}

export class Story {
  readonly #deps: StoryDeps;
  readonly #digest = createHash('sha256');
  readonly #lines: string[] = [];

  constructor(deps: StoryDeps) {
    this.#deps = deps;
  }

  tell(who: string, what: string): void {
    const line = this.#line(who, what);
    this.#lines.push(line);
    if (this.#lines.length > KEPT_LINES) this.#lines.shift();
    this.#deps.trace?.(line);
  }

  /** Something too small for the story, but part of the trace and of the digest. */
  note(who: string, what: string): void {
    const line = this.#line(who, what);
    this.#deps.trace?.(line);
  }

  last(count: number): string[] {
    return this.#lines.slice(-count);
  }

  digest(): string {
    return this.#digest.copy().digest('hex');
  }

  logger(who: string): Logger {
    const write =
      (level: string, isShown: boolean) =>
      (...logged: unknown[]) => {
        const [fields, message] =
          typeof logged[0] === 'string' ? [{}, logged[0]] : [logged[0] as object, String(logged[1] ?? '')];
        const isDefect = level === 'error' || level === 'fatal' || message.includes('could not be handled');
        if (isDefect && !isExpected(message, errorOf(fields))) this.#deps.unexpected(who, errorOf(fields) ?? message);
        if (isShown) this.tell(who, `${level === 'info' ? '' : `${level}: `}${message} ${fieldsText(fields)}`);
      };
    const logger = {
      trace: write('trace', false),
      debug: write('debug', false),
      info: write('info', true),
      warn: write('warn', true),
      error: write('error', true),
      fatal: write('fatal', true),
      level: () => 30,
      child: () => logger,
    };
    return logger as unknown as Logger;
  }

  #line(who: string, what: string): string {
    const line = `${(this.#deps.time.now / 1000).toFixed(4).padStart(9)} ${who.padEnd(9)} ${what}`;
    this.#digest.update(line).update('\n');
    return line;
  }
}

/** The workload's own duties fail as planned, and any while there is no database. */
const isExpected = (message: string, error: unknown): boolean =>
  EXPECTED_ERRORS.test(message) || (message === WORK_FAILED && (isTemporary(error) || messageOf(error) === SIMULATED));

const errorOf = (fields: object): unknown => (fields as { err?: unknown }).err;

function fieldsText(fields: object): string {
  const text = JSON.stringify(fields, (_key, value: unknown) => (value instanceof Error ? value.message : value));
  return text === '{}' ? '' : text.slice(0, 400);
}

/** The errors of commands, and their exit codes. */
import { messageOf } from '../../platform/errors.ts';

/**
 * The command line is wrong, or names what does not exist, and nothing was changed: exit code 2.
 */
export class UsageError extends Error {}

/**
 * The file that an option names cannot be read: to be called with the reason. @throws UsageError
 */
export const unreadable = (option: string, file: string) => (cause: unknown) => {
  throw new UsageError(`${option} ${file} cannot be read: ${messageOf(cause)}`, { cause });
};

/** The present state, as an instance reported it, does not permit the command: exit code 1. */
export class RefusedError extends Error {}

/** The instance answered without what this token may not see: exit code 1. */
export class WithheldError extends Error {
  /** `what`: the subject of the sentence, in the plural: `The command and the options of a job`. */
  constructor(what: string) {
    super(`${what} are shown only to tokens with the right task-contents: those of the role operator or admin`);
  }
}

/** The exit codes of all commands; `lock` has more of its own. */
export const EXIT = { ok: 0, failed: 1, usage: 2, noAnswer: 3, incomplete: 4, interrupted: 130 } as const;

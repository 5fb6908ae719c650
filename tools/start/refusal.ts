/** Why `npm start` does not continue: a message for its user and an exit code, without a stack. */
import { CnapiError } from '../../lib/platform/errors.ts';

export class Refusal extends Error {
  readonly exitCode: number;

  constructor(message: string, exitCode = 1, cause?: unknown) {
    super(message, { cause });
    this.exitCode = exitCode;
  }
}

const SCHEMA_CODES: ReadonlySet<string> = new Set(['FormerSchema', 'MigrationError']);

const hints: Record<string, string> = {
  ENOSPC: 'the disk is full; make room, or choose another place with --data DIR',
  EDQUOT: 'the disk quota is used up; make room, or choose another place with --data DIR',
  EACCES: 'this user may not write there; choose another place with --data DIR',
  EPERM: 'this user may not write there; choose another place with --data DIR',
  EEXIST: 'something else is in the way; choose another place with --data DIR',
  ENOTDIR: 'something else is in the way; choose another place with --data DIR',
  EROFS: 'that file system is read-only; choose another place with --data DIR',
};

/**
 * Converts a system error to a Refusal with its remedy, and one of the database's schema, whose
 * message names the remedy; returns any other error unchanged.
 */
export function explained(error: unknown): unknown {
  if (error instanceof CnapiError && SCHEMA_CODES.has(error.code)) return new Refusal(error.message, 1, error);
  const code = (error as NodeJS.ErrnoException | undefined)?.code;
  const hint = code === undefined ? undefined : hints[code];
  return hint === undefined ? error : new Refusal(`${(error as Error).message}: ${hint}`, 1, error);
}

/** The command line says something that cannot be done: exit code 2. */
export class UsageError extends Error {}

/** What every command's exit code means; `lock` has more of its own. */
export const EXIT = { ok: 0, failed: 1, usage: 2, noAnswer: 3, interrupted: 130 } as const;

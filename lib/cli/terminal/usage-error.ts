/** The command line cannot be carried out: exit code 2. */
export class UsageError extends Error {}

/** The exit codes of all commands; `lock` has more of its own. */
export const EXIT = { ok: 0, failed: 1, usage: 2, noAnswer: 3, incomplete: 4, interrupted: 130 } as const;

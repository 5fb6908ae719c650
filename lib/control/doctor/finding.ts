/** The result of a check: its level, what was found, and what to do about it. */
export type Level = 'ok' | 'warn' | 'fail';

export interface Finding {
  /** The part that was checked: config, database, bus, … */
  part: string;
  level: Level;
  found: string;
  /** Present when the user should do something. */
  todo?: string;
}

/** Creates the findings of one part. */
export interface Findings {
  ok(found: string): Finding;
  warn(found: string, todo: string): Finding;
  fail(found: string, todo: string): Finding;
}

export function findings(part: string): Findings {
  return {
    ok: (found) => ({ part, level: 'ok', found }),
    warn: (found, todo) => ({ part, level: 'warn', found, todo }),
    fail: (found, todo) => ({ part, level: 'fail', found, todo }),
  };
}

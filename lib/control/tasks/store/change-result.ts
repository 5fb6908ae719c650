/**
 * What the statements of several stores that change tasks have in common: the session that fences
 * them, and their results. Pure.
 */

/** The parts of a session that fence a claim. */
export interface ClaimingSession {
  serverUuid: string;
  epoch: number;
  journalId: string;
}

export interface ChangedTask {
  id: string;
  ended: boolean;
}

/** The results of a statement that skips locked rows. */
export interface WrittenTasks {
  changed: ChangedTask[];
  /** Nothing was written for these tasks. */
  locked: string[];
}

export interface WrittenRow {
  id: string;
  what: 'changed' | 'ended' | 'locked';
}

export function toWritten(rows: readonly WrittenRow[]): WrittenTasks {
  return {
    changed: rows.flatMap(({ id, what }) => (what === 'locked' ? [] : [{ id, ended: what === 'ended' }])),
    locked: rows.flatMap(({ id, what }) => (what === 'locked' ? [id] : [])),
  };
}

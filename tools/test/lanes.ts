/**
 * Divides test files into kinds that run beside each other. Files that only compute (virtual
 * time, state explorers) need all of a core for minutes, and do not care when they get it. Files
 * that run real processes often wait, but must be served immediately: an agent whose process gets
 * no processor for seconds is silent, and its server unknown. Therefore the first kind runs at a
 * low priority and uses what the other leaves. Chaos measures how soon a zone of its own recovers,
 * and mostly waits: it starts when the other real processes have ended, beside what only computes.
 */
import path from 'node:path';

export interface Lane {
  name: 'computing' | 'timed' | 'chaos';
  /** The lane after whose end this one starts. */
  after?: 'timed';
  /** Test files in the order in which they start. */
  files: readonly string[];
  /** This many files run at a time. */
  jobs: number;
  /** The argument of `nice`. */
  niceness: number;
  /** Time limit of each file. */
  timeoutS: number;
}

export const COMPUTING = [
  'test/sim/*.test.ts',
  'test/explorer/*.test.ts',
  'test/control/push/schedules/schedule-model.test.ts',
] as const;

/** More than cores, because they often wait; each has several processes. */
const TIMED = { name: 'timed', jobs: 4, niceness: 0, timeoutS: 900 } as const;
/** These may end only after the others, and a run of all files takes less than this. */
const COMPUTED = { name: 'computing', jobs: 2, niceness: 15, timeoutS: 4_800 } as const;

export const CHAOS = 'test/chaos/chaos.test.ts';
/** Nine minutes of faults, and what a busy machine adds. */
const LAST = { name: 'chaos', after: 'timed', jobs: 1, niceness: 0, timeoutS: 1_800 } as const;

/** Returns no lane without files; a lane follows the one that it starts after. */
export function lanesOf(files: readonly string[]): Lane[] {
  const lanes: Lane[] = [
    { ...TIMED, files: files.filter((file) => !onlyComputes(file) && file !== CHAOS) },
    { ...COMPUTED, files: files.filter(onlyComputes) },
    { ...LAST, files: files.filter((file) => file === CHAOS) },
  ];
  return lanes.filter((lane) => lane.files.length > 0);
}

function onlyComputes(file: string): boolean {
  return COMPUTING.some((pattern) => path.matchesGlob(file, pattern));
}

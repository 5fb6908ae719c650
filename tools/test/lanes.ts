/**
 * Divides test files into three kinds that run beside each other. Files that start whole zones have
 * up to a dozen processes each, but wait most of the time. The other files that use real sockets or
 * a real database wait even more, and need little memory. Both kinds must be served at once: an
 * agent whose process gets no processor for seconds is silent, and its server unknown. Files that
 * only compute (virtual time, state explorers) need all of a core for minutes, and do not care when
 * they get it. They run at a low priority and use what the others leave.
 */
import path from 'node:path';

export interface Lane {
  name: 'zones' | 'timed' | 'computing';
  /** In the order in which they start. */
  files: readonly string[];
  /** This many files run at a time. */
  jobs: number;
  /** As `nice` takes it. */
  niceness: number;
  /** For each file. */
  timeoutS: number;
}

export const ZONES = [
  'test/{chaos,cli,failover,faults,openapi,sdc-clients,upgrade}/**/*.test.ts',
  'test/docs/adding-a-noun.test.ts',
  'test/tools/start/*.test.ts',
] as const;

export const COMPUTING = [
  'test/sim/*.test.ts',
  'test/explorer/*.test.ts',
  'test/control/push/schedules/schedule-model.test.ts',
] as const;

/** At a time more than cores: a file that starts zones uses about a third of one. */
const ZONED = { niceness: 0, jobs: 3, timeoutS: 900 } as const;
/** A sixth of a core for each. */
const TIMED = { niceness: 0, jobs: 4, timeoutS: 900 } as const;
/** These may end only after the others, and a run of all files takes less than this. */
const COMPUTED = { niceness: 15, jobs: 2, timeoutS: 4_800 } as const;

/** Returns no lane without files. */
export function lanesOf(files: readonly string[]): Lane[] {
  const of = (name: Lane['name']) => files.filter((file) => laneOf(file) === name);
  const lanes: Lane[] = [
    { ...ZONED, name: 'zones', files: of('zones') },
    { ...TIMED, name: 'timed', files: of('timed') },
    { ...COMPUTED, name: 'computing', files: of('computing') },
  ];
  return lanes.filter((lane) => lane.files.length > 0);
}

function laneOf(file: string): Lane['name'] {
  const isOf = (patterns: readonly string[]) => patterns.some((pattern) => path.matchesGlob(file, pattern));
  if (isOf(COMPUTING)) return 'computing';
  return isOf(ZONES) ? 'zones' : 'timed';
}

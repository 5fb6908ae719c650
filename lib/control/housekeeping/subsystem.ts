/** What housekeeping contributes to an instance. */
import type { Subsystem } from '../subsystem.ts';
import type { Housekeeping } from './housekeeping.ts';

export function housekeepingSubsystem(housekeeping: Housekeeping): Subsystem {
  return { name: 'housekeeping', start: () => housekeeping.start(), stop: () => housekeeping.stop() };
}

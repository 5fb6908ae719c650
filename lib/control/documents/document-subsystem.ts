/** How an instance gets a noun of the bucket store. */
import type { Logger } from '../../platform/log.ts';
import type { BucketStore } from '../../platform/moray/bucket-store.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { SubsystemDefinition } from '../subsystem.ts';

interface NounParts {
  buckets: BucketStore;
  clock: Clock;
  random: Random;
  log: Logger;
}

export type DocumentSubsystem = SubsystemDefinition<NounParts>;

/** How an instance gets a noun of the bucket store. */
import type { Clock } from '../../platform/clock.ts';
import type { Logger } from '../../platform/log.ts';
import type { BucketStore } from '../../platform/moray/bucket-store.ts';
import type { Random } from '../../platform/random.ts';
import type { Subsystem } from '../subsystem.ts';

export interface NounPorts {
  buckets: BucketStore;
  clock: Clock;
  random: Random;
  log: Logger;
}

export type OpenNoun = (ports: NounPorts) => Subsystem;

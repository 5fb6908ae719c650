/** What a noun of the bucket store contributes to an instance. */

import type { Clock } from '../../platform/clock.ts';
import type { Logger } from '../../platform/log.ts';
import type { BucketStore } from '../../platform/moray/bucket-store.ts';
import type { Random } from '../../platform/random.ts';
import type { Route } from '../http/route.ts';
import type { Subsystem } from '../subsystem.ts';

export interface NounPorts {
  buckets: BucketStore;
  clock: Clock;
  random: Random;
  log: Logger;
}

export interface Noun {
  subsystem: Subsystem;
  routes: readonly Route[];
}

export type OpenNoun = (ports: NounPorts) => Noun;

/** Opens the nouns of the bucket store for one instance. */
import { BucketStore } from '../../platform/moray/bucket-store.ts';
import type { Database } from '../../platform/postgres/database.ts';
import type { Noun, NounPorts, OpenNoun } from '../documents/noun.ts';
import * as nouns from './nouns.ts';

type Deps = Omit<NounPorts, 'buckets'> & { database: Database };

export function openNouns({ database, ...ports }: Deps): Noun[] {
  const buckets = new BucketStore({ database });
  return Object.values<OpenNoun>({ ...nouns }).map((open) => open({ ...ports, buckets }));
}

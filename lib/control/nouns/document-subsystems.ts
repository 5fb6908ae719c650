/** The nouns of the bucket store as subsystems. */
import { BucketStore } from '../../platform/moray/bucket-store.ts';
import type { Database } from '../../platform/postgres/database.ts';
import type { NounPorts, OpenNoun } from '../documents/noun.ts';
import type { SubsystemDefinition } from '../subsystem.ts';
import * as nouns from './nouns.ts';

type DocumentParts = Omit<NounPorts, 'buckets'> & { database: Database };

export const documentSubsystems: readonly SubsystemDefinition<DocumentParts>[] = Object.values<OpenNoun>({
  ...nouns,
}).map((open) => ({
  open: ({ database, clock, random, log }) => open({ buckets: new BucketStore({ database }), clock, random, log }),
}));

/**
 * One pass over items that are all known now, under the failure rule of `batch-queue.ts`: the items
 * that are locked, slow or refused alone are left out, and the others are done.
 */
import { DatabaseUnavailableError } from '../errors.ts';
import { BatchQueue, type BatchQueueDeps } from './batch-queue.ts';

type OnceDeps<Item> = Pick<BatchQueueDeps<Item>, 'clock' | 'log' | 'database' | 'what' | 'keyOf' | 'work' | 'maxBatch'>;

/** Returns the items that were not done. @throws DatabaseUnavailableError */
export async function doOnce<Item>(items: readonly Item[], options: OnceDeps<Item>): Promise<Item[]> {
  let outage: DatabaseUnavailableError | undefined;
  const queue = new BatchQueue<Item>({
    ...options,
    // Everything is done by `finish`.
    mayBegin: () => false,
    work: (batch, database) => (outage === undefined ? options.work(batch, database) : Promise.reject(outage)),
    lost: (_, error) => {
      if (error instanceof DatabaseUnavailableError) outage = error;
      return outage !== undefined;
    },
  });
  for (const item of items) queue.add(item);
  const left = await queue.finish();
  if (outage !== undefined) throw outage;
  return left;
}

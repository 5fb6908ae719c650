/**
 * Passes over items that are all known at the start of a pass, under the failure rule of
 * `batch-queue.ts`: the items that are locked, slow or refused alone are left out, and the others
 * are done. What one pass learned of the network bounds the batches of the next.
 */
import { DatabaseUnavailableError } from '../../errors.ts';
import { BatchLimit } from './batch-limit.ts';
import { BatchQueue, type BatchQueueDeps } from './batch-queue.ts';

type OnceDeps<Item> = Pick<BatchQueueDeps<Item>, 'clock' | 'log' | 'database' | 'what' | 'keyOf' | 'work' | 'maxBatch'>;

export class BatchOnce<Item> {
  readonly #deps: OnceDeps<Item>;
  readonly #limit: BatchLimit<Item>;

  constructor(deps: OnceDeps<Item>) {
    this.#deps = deps;
    this.#limit = new BatchLimit(deps);
  }

  /** One pass. Returns the items that were not done. @throws DatabaseUnavailableError */
  async do(items: readonly Item[]): Promise<Item[]> {
    const { work } = this.#deps;
    let outage: DatabaseUnavailableError | undefined;
    const queue = new BatchQueue<Item>({
      ...this.#deps,
      batchLimit: this.#limit,
      // Everything is done by `finish`.
      mayBegin: () => false,
      work: (batch, database) => (outage === undefined ? work(batch, database) : Promise.reject(outage)),
      onLost: (_, error) => {
        if (error instanceof DatabaseUnavailableError) outage = error;
        return outage !== undefined;
      },
    });
    for (const item of items) queue.add(item);
    const left = await queue.finish();
    if (outage !== undefined) throw outage;
    return left;
  }
}

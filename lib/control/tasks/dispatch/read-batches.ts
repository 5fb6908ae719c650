/**
 * Reads the claimed tasks in batches of bounded size. So the first tasks are sent while the others
 * are read, and no read holds more memory than its limit. An unreadable task does not block the
 * others.
 */
import { DatabaseUnavailableError, isTemporary, messageOf } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';

export const MAX_READ_BYTES = 4 * 1024 * 1024;
export const MAX_READ_TASKS = 500;

/**
 * Keeps the order. Each batch has one to 500 tasks, with at most 4 MiB of params unless it has just
 * one task.
 */
export function* inReadBatches<Given extends { params_bytes: number }>(given: readonly Given[]): Generator<Given[]> {
  let batch: Given[] = [];
  let bytes = 0;
  for (const one of given) {
    if (batch.length === MAX_READ_TASKS || (batch.length > 0 && bytes + one.params_bytes > MAX_READ_BYTES)) {
      yield batch;
      batch = [];
      bytes = 0;
    }
    batch.push(one);
    bytes += one.params_bytes;
  }
  if (batch.length > 0) yield batch;
}

/**
 * Reads each batch. If the database refuses a batch, it is halved until the unreadable task is
 * alone, and that task is left out. A batch that is only slow is left out whole: its tasks are read
 * another time. @throws DatabaseUnavailableError
 */
export async function* readInBatches<Given extends { id: string; params_bytes: number }, Read>(
  given: readonly Given[],
  read: (batch: Given[]) => Promise<Read[]>,
  log: Logger,
): AsyncGenerator<{ batch: readonly Given[]; read: Read[] }> {
  const batches = [...inReadBatches(given)];
  for (let batch = batches.shift(); batch !== undefined; batch = batches.shift()) {
    try {
      yield { batch, read: await read(batch) };
    } catch (error) {
      if (error instanceof DatabaseUnavailableError) throw error;
      const isAlone = batch.length === 1;
      if (isAlone || isTemporary(error)) {
        const tasks = batch.map(({ id }) => id);
        log.warn({ tasks, reason: messageOf(error) }, 'tasks cannot be read now');
      } else {
        const half = Math.ceil(batch.length / 2);
        batches.unshift(batch.slice(0, half), batch.slice(half));
      }
    }
  }
}

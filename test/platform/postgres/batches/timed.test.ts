import t from 'tap';
import { DatabaseBusyError } from '../../../../lib/platform/errors.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import { BatchQueue } from '../../../../lib/platform/postgres/batches/batch-queue.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { ManualClock } from '../../../support/manual-clock.ts';

const WAIT_MS = 8_000;
const STATEMENT_MS = 10;

/** A queue whose first statement is locked after a wait; returns when each statement began. */
async function statementsAfter(waits: { turn?: number; connection?: number }): Promise<number[]> {
  const clock = new ManualClock();
  const from = clock.now();
  const began: number[] = [];
  const database: Queryable = {
    async query(_text, _values, { onSent } = {}) {
      if (began.length === 0) await clock.sleep(waits.connection ?? 0);
      onSent?.();
      began.push(clock.now() - from);
      await clock.sleep(STATEMENT_MS);
      if (began.length === 1) throw new DatabaseBusyError('locked');
      return { rows: [], rowCount: 0 };
    },
  };
  const queue = new BatchQueue<string>({
    clock,
    log: silentLogger,
    database,
    what: 'items of a test',
    keyOf: (item) => item,
    maxBatch: 1,
    async work(_, connection) {
      if (began.length === 0) await clock.sleep(waits.turn ?? 0);
      await connection.query('');
      return undefined;
    },
  });
  queue.add('a');
  await clock.advance(10 * WAIT_MS);
  return began;
}

for (const [name, waits] of [
  ['its turn', { turn: WAIT_MS }],
  ['a connection', { connection: WAIT_MS }],
] as const)
  t.test(`a wait for ${name} is not a time of the statement, so the pause after it is short`, async (t) => {
    t.same(await statementsAfter(waits), [WAIT_MS, WAIT_MS + STATEMENT_MS + 100]);
  });

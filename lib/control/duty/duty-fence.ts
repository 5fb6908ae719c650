/** The fence of statements that write for the holder of a job's duty. */
import type { Queryable } from '../../platform/postgres/database.ts';
import { DutyLostError, type HeldDuty } from './duty.ts';

/** Runs a statement that returns whether the duty is still held. @throws DutyLostError if not */
export async function fenced(
  database: Queryable,
  duty: HeldDuty,
  sql: string,
  more: readonly unknown[] = [],
): Promise<void> {
  const { rows } = await database.query<{ held: boolean }>(sql, [...fenceValues(duty), ...more]);
  if (rows[0]?.held !== true) throw new DutyLostError(duty);
}

export const fenceValues = ({ id, run, generation }: HeldDuty): unknown[] => [id, run, generation];

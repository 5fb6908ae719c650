/** The work of statements, counted in blocks instead of measured in time. */
import type { Queryable } from '../../lib/platform/postgres/database.ts';

interface Plan {
  'QUERY PLAN': { Plan: Record<string, number> }[];
}

/**
 * Blocks of tables and indexes that the statements of `work` read. They are carried out, but `work`
 * gets one row without values.
 */
export async function blocksRead(database: Queryable, work: (counted: Queryable) => Promise<unknown>): Promise<number> {
  let blocks = 0;
  await work({
    query: async <Row>(text: string, values?: readonly unknown[]) => {
      const { rows } = await database.query<Plan>(`explain (analyze, buffers, format json) ${text}`, values);
      const plan = rows[0]?.['QUERY PLAN'][0]?.Plan ?? {};
      blocks += (plan['Shared Hit Blocks'] ?? 0) + (plan['Shared Read Blocks'] ?? 0);
      return { rows: [{} as Row], rowCount: 1 };
    },
  });
  return blocks;
}

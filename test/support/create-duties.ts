import type { Queryable } from '../../lib/platform/postgres/database.ts';

/**
 * Creates duties of one kind without objects; returns the ids of those that did not exist. In the
 * product the function of the database that creates the objects calls `cnapi_create_duties`.
 */
export async function createDuties(database: Queryable, kind: string, ids: readonly string[]): Promise<string[]> {
  const { rows } = await database.query<{ id: string }>('select cnapi_create_duties($1::uuid[], $2::text) as id', [
    ids,
    kind,
  ]);
  return rows.map(({ id }) => id);
}

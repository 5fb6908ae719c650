import type { Queryable } from '../../lib/platform/postgres/database.ts';

/** Makes an empty database look like one of a development version from before the baseline. */
export async function giveFormerSchema(database: Queryable): Promise<void> {
  await database.query(`create table cnapi_migrations (
      number int primary key, name text not null, applied_at timestamptz not null default clock_timestamp(), digest text);
    insert into cnapi_migrations (number, name) values (1, 'clock')`);
}

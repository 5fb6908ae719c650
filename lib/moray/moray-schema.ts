/** Migrations 1-9: what every other table and statement builds on. */
import type { Migration } from './migrations.ts';

export const morayMigrations: Migration[] = [
  {
    number: 1,
    name: 'clock',
    // The one source of time in SQL. A simulation replaces it; STABLE lets the planner call it once a statement.
    sql: `
      create or replace function cnapi_now() returns timestamptz
      language sql stable
      as $$ select clock_timestamp() $$`,
  },
];

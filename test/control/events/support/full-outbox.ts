import type { Queryable } from '../../../../lib/platform/postgres/database.ts';

/** The bound in lib/control/events/migrations/003-add-event.sql. */
const OUTBOX_ROWS = 100_000;

/** Fills the outbox: later changes are missed. */
export async function fillOutbox(database: Queryable): Promise<void> {
  await database.query(`select setval('cnapi_event_moved_seq', last_value - $1::int) from cnapi_event_moved_seq`, [
    OUTBOX_ROWS,
  ]);
}

/** Rows of the table: the log of events. Triggers of the other tables fill its outbox. */
import {
  deleteOldEvents,
  deleteSurplusEvents,
  numberEvents,
  readEventPage,
  readLog,
  readPositionAt,
} from '../../lib/control/events/event-store.ts';
import { reads, type Statement, writes } from './statement.ts';

export const eventStatements: readonly Statement[] = [
  writes(numberEvents, { 'recorded changes': { args: () => [1_000] } }),
  writes(deleteSurplusEvents, { 'all but one': { args: () => [1, 1_000] } }),
  writes(deleteOldEvents, { 'of today': { args: () => [0, 1_000] } }),
  reads(readLog, () => [1]),
  reads(readPositionAt, () => [60_000]),
  reads(readEventPage, () => [{}, { from: 0, upTo: 1_000, limit: 10 }]),
];

/**
 * The audit's records of push jobs that nobody deletes by a request: old ones, and those of which
 * an organization or a schedule has too many.
 */
import type { ExpiryPart } from '../../../platform/postgres/sql-text.ts';
import { expiryPart } from '../../audit/audit-store.ts';

/** `instance`: the uuid of the one that deletes them. */
export const expiryRecord = (instance: string): ExpiryPart =>
  expiryPart({ action: 'DeletePushJob', path: '/push-jobs/', instance });

/** The audit's records of push jobs that are deleted because of their age. */
import type { ExpiryPart } from '../../platform/sql-text.ts';
import { expiryPart } from '../audit/audit-store.ts';

/** `instance`: the uuid of the one that deletes them. */
export const jobExpiry = (instance: string): ExpiryPart =>
  expiryPart({ action: 'DeletePushJob', path: '/push-jobs/', instance });

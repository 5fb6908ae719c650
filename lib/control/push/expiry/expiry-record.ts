/**
 * The audit's records of push jobs that nobody deletes by a request: old ones, and those of which
 * an organization or a schedule has too many.
 */

import { expiryPart } from '../../audit/audit-store.ts';
import type { ExpiryPart } from '../../audit-part.ts';

/** `instance`: the uuid of the one that deletes them. */
export const expiryRecord = (instance: string): ExpiryPart =>
  expiryPart({ action: 'DeletePushJob', path: '/push-jobs/', instance });

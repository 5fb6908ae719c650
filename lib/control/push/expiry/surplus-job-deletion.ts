/**
 * Deletes the oldest ended jobs of organizations that have too many. Goes through the organizations
 * one by one, and reads once for each which of its jobs are too many.
 */
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { ExpiryPart } from '../../audit-part.ts';
import { deleteSurplusJobs, readSurplusJobs, type SurplusJobs } from './expiry-store.ts';

interface Bounds {
  /** How many ended jobs of each organization are kept. */
  keep: number;
  /** How many jobs one statement deletes. */
  limit: number;
  /** How many nodes one statement deletes with them. */
  nodes: number;
}

export class SurplusJobDeletion {
  readonly #database: Queryable;
  readonly #bounds: Bounds;
  /** The organization of the last batch, and which of its jobs are too many. */
  #surplus: SurplusJobs | undefined;

  constructor(database: Queryable, bounds: Bounds) {
    this.#database = database;
    this.#bounds = bounds;
  }

  /** Deletes one batch; returns how many. Call it until it returns 0. */
  async batch(records?: ExpiryPart): Promise<number> {
    const { keep, ...batch } = this.#bounds;
    let surplus = this.#surplus;
    this.#surplus = undefined;
    for (;;) {
      const { organizationUuid = '', upTo } = surplus ?? {};
      const count =
        upTo === undefined ? 0 : await deleteSurplusJobs(this.#database, { organizationUuid, upTo, ...batch, records });
      if (count > 0) {
        this.#surplus = surplus;
        return count;
      }
      surplus = await readSurplusJobs(this.#database, { after: organizationUuid, keep });
      if (surplus === undefined) return 0;
    }
  }
}

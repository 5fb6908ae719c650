/**
 * Ends what users and clients have opened with a signed request in an organization and still have
 * open, when they may not read its push jobs any more: their key or they themselves were deleted,
 * the key has expired, they left the organization or the group that reading needs. Tokens are
 * watched elsewhere (lib/control/access/token-authenticator.ts). Called by the feeds of /pushy.
 *
 * Every 30 s all rights are read, those of up to 200 callers in one statement; a statement that
 * takes too long is divided (`batch-queue.ts`).
 *
 *     checked ──may read──▶ checked ──may not──▶ closed
 *        └─30 s pass without an answer, 10 times──▶ closed
 *
 * A time in which the database was down does not count, and closes nothing: whoever is connected
 * did not cause it, and a feed has nothing to tell then. But while the database answers others,
 * nobody reads on for more than five minutes by a right that could not be checked.
 */
import { DatabaseUnavailableError } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import { BatchQueue } from '../../../platform/postgres/batches/batch-queue.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import { Loop } from '../../../platform/time/loop.ts';
import type { Principal } from '../../access/token.ts';
import { type PresentRight, readPresentRights } from '../../organizations/organization-store.ts';
import { ADMINS, mayAct, neededGroups, READERS, type Requestor, WRITERS } from '../../organizations/requestor.ts';

interface AccessRecheckerDeps {
  database: Queryable;
  clock: Clock;
  log: Logger;
}

/** Callers that hold something open in one organization with one key. */
interface Holder {
  key: string;
  organizationUuid: string;
  requestor: Requestor;
  principal: Principal;
  onEnded: Set<() => void>;
  /** Periods since its right was read, without those in which the database was down. */
  unchecked: number;
}

const CHECK_MS = 30_000;
const MAX_UNCHECKED = 10;
const MAX_BATCH = 200;

export class AccessRechecker {
  readonly #deps: AccessRecheckerDeps;
  readonly #periods: Loop;
  readonly #checks: BatchQueue<Holder>;
  /** Holders by organization, principal and key. */
  readonly #held = new Map<string, Holder>();
  /** Whether a check of this period found the database down, and whether one had an answer. */
  #met = { outage: false, answer: false };
  #unchecked = 0;

  constructor(deps: AccessRecheckerDeps) {
    this.#deps = deps;
    const what = 'organizations: check of rights';
    this.#periods = new Loop({
      ...deps,
      what,
      work: async () => this.#period(),
      pauseMs: CHECK_MS,
      first: 'pause',
    });
    this.#checks = new BatchQueue({
      ...deps,
      what,
      keyOf: ({ key }) => key,
      join: (_, later) => later,
      work: (holders, database) => this.#check(holders, database),
      maxBatch: MAX_BATCH,
    });
  }

  /** Callers whose streams were closed because their rights could not be checked. */
  get unchecked(): number {
    return this.#unchecked;
  }

  start(): void {
    this.#periods.start();
  }

  async stop(): Promise<void> {
    await this.#periods.stop();
    await this.#checks.stop();
  }

  /**
   * Calls `onEnded` once when the requestor may not read push jobs any more, unless the returned
   * function was called before. Does nothing for the owner of a token.
   */
  hold(requestor: Requestor, organizationUuid: string, onEnded: () => void): () => void {
    const { principal } = requestor.actor;
    if (principal === undefined) return () => undefined;
    const { kind, uuid, publicKey } = principal;
    const key = `${organizationUuid} ${kind} ${uuid} ${publicKey}`;
    const known = this.#held.get(key);
    const holder = known ?? { key, organizationUuid, requestor, principal, onEnded: new Set(), unchecked: 0 };
    this.#held.set(key, holder);
    const end = () => onEnded();
    holder.onEnded.add(end);
    return () => {
      holder.onEnded.delete(end);
      if (holder.onEnded.size === 0) this.#forget(holder);
    };
  }

  #forget(holder: Holder): void {
    if (this.#held.get(holder.key) !== holder) return;
    this.#held.delete(holder.key);
    this.#checks.delete(holder.key);
  }

  #period(): void {
    // Connections of this instance may run out while the database answers others.
    const wasDown = this.#met.outage && !this.#met.answer;
    this.#met = { outage: false, answer: false };
    for (const holder of [...this.#held.values()]) {
      if (holder.unchecked >= MAX_UNCHECKED) {
        this.#unchecked += 1;
        this.#close(holder, 'its right to read push jobs could not be checked for five minutes');
      } else if (!wasDown) holder.unchecked += 1;
    }
    this.#checks.addAll([...this.#held.values()]);
  }

  async #check(holders: readonly Holder[], database: Queryable): Promise<undefined> {
    const asked = holders.map(({ organizationUuid, principal }) => ({ organizationUuid, ...principal }));
    const rights = await readPresentRights(database, asked, [READERS, WRITERS, ADMINS]).catch((error: unknown) => {
      this.#met[error instanceof DatabaseUnavailableError ? 'outage' : 'answer'] = true;
      throw error;
    });
    this.#met.answer = true;
    for (const [index, holder] of holders.entries()) {
      const right = rights[index];
      holder.unchecked = 0;
      if (right === undefined || !mayRead(holder, right)) this.#close(holder, 'it may not read push jobs any more');
    }
    return undefined;
  }

  #close(holder: Holder, reason: string): void {
    if (this.#held.get(holder.key) !== holder) return;
    const { organizationUuid, requestor, onEnded } = holder;
    this.#deps.log.info(
      { organization: organizationUuid, actor: requestor.actor.name, open: onEnded.size, reason },
      'chef: closing the streams of a caller',
    );
    this.#forget(holder);
    for (const end of [...onEnded]) end();
  }
}

function mayRead({ requestor }: Holder, { isKnown, memberOf, existing }: PresentRight): boolean {
  const groups = new Set(memberOf);
  return isKnown && mayAct({ ...requestor, groups, needs: neededGroups(new Set(existing)) }, 'read');
}

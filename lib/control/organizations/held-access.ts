/**
 * Ends what users and clients have opened with a signed request in an organization and still have
 * open, when they may not read its push jobs any more: their key or they themselves were deleted,
 * the key has expired, they left the organization or the group that reading needs. Tokens are
 * watched elsewhere (lib/control/access/sign-in.ts). Called by the feeds of /pushy.
 *
 * Every 30 s one statement for each organization reads the rights of all who have something open
 * there. While the database does not answer, what is open stays open.
 */
import type { Clock } from '../../platform/clock.ts';
import type { Logger } from '../../platform/log.ts';
import { Loop } from '../../platform/loop.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Principal } from '../access/token.ts';
import { readHeldRights } from './organization-store.ts';
import { ADMINS, mayAct, neededGroups, READERS, type Requestor, WRITERS } from './requestor.ts';

interface HeldAccessDeps {
  database: Queryable;
  clock: Clock;
  log: Logger;
}

/** Those who hold something in one organization with one key. */
interface Holder {
  key: string;
  requestor: Requestor;
  principal: Principal;
  onEnded: Set<() => void>;
}

const CHECK_MS = 30_000;
const MAX_BATCH = 200;

export class HeldAccess {
  readonly #deps: HeldAccessDeps;
  readonly #checks: Loop;
  /** By the uuid of the organization, then by the principal and its key. */
  readonly #held = new Map<string, Map<string, Holder>>();

  constructor(deps: HeldAccessDeps) {
    this.#deps = deps;
    this.#checks = new Loop({
      ...deps,
      what: 'organizations: check of rights (what is open stays open)',
      work: () => this.#check(),
      pauseMs: CHECK_MS,
      first: 'pause',
    });
  }

  start(): void {
    this.#checks.start();
  }

  stop(): Promise<void> {
    return this.#checks.stop();
  }

  /**
   * Calls `onEnded` once when the requestor may not read push jobs any more, unless the returned
   * function was called before. Does nothing for the owner of a token.
   */
  hold(requestor: Requestor, organization: string, onEnded: () => void): () => void {
    const { principal } = requestor.actor;
    if (principal === undefined) return () => undefined;
    const { kind, uuid, publicKey } = principal;
    const key = `${kind} ${uuid} ${publicKey}`;
    const holders = this.#held.get(organization) ?? new Map<string, Holder>();
    this.#held.set(organization, holders);
    const holder = holders.get(key) ?? { key, requestor, principal, onEnded: new Set() };
    holders.set(key, holder);
    const end = () => onEnded();
    holder.onEnded.add(end);
    return () => {
      holder.onEnded.delete(end);
      if (holder.onEnded.size === 0) this.#forget(organization, holder);
    };
  }

  #forget(organization: string, holder: Holder): void {
    const holders = this.#held.get(organization);
    if (holders?.get(holder.key) !== holder) return;
    holders.delete(holder.key);
    if (holders.size === 0) this.#held.delete(organization);
  }

  /** An organization whose check fails does not keep the others from theirs. */
  async #check(): Promise<void> {
    const errors: unknown[] = [];
    for (const [organization, holders] of [...this.#held]) {
      const all = [...holders.values()];
      for (let at = 0; at < all.length; at += MAX_BATCH)
        await this.#checkSome(organization, all.slice(at, at + MAX_BATCH)).catch((error) => errors.push(error));
    }
    if (errors.length > 0) throw errors[0];
  }

  async #checkSome(organization: string, holders: readonly Holder[]): Promise<void> {
    const principals = holders.map(({ principal }) => principal);
    const wanted = [READERS, WRITERS, ADMINS];
    const { existing, rights } = await readHeldRights(this.#deps.database, { organization, principals, wanted });
    const needs = neededGroups(new Set(existing));
    for (const [index, holder] of holders.entries()) {
      const { requestor, onEnded } = holder;
      const right = rights[index];
      if (right?.isKnown && mayAct({ ...requestor, groups: new Set(right.memberOf), needs }, 'read')) continue;
      this.#deps.log.info(
        { organization, actor: requestor.actor.name, open: onEnded.size },
        'organizations: a caller may not read push jobs any more; closing its streams',
      );
      this.#forget(organization, holder);
      for (const end of [...onEnded]) end();
    }
  }
}

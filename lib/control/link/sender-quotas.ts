/**
 * What the input of agents costs: of each sender over all its connections, of a group that shares
 * one token or one address, and of an instance. Above the rate of an instance the cost of input is
 * multiplied for senders that have used up their share, so a few that send much do not slow down
 * the others. Time is passed with each call; owned by the link server.
 */
import { BoundedMap } from '../../platform/limiting/bounded-map.ts';
import { RateLimit } from '../../platform/limiting/rate-limiter.ts';
import { BURST_BYTES, BYTES_PER_MS, LINK_RATE } from '../../protocol/link/link-quota.ts';
import type { ReadQuota } from '../../protocol/link/read-limiter.ts';
import { MAX_CONCURRENT_ADMISSIONS } from '../roster/accept/admission.ts';

/** Costs as `link-quota.ts` counts them. A live agent that only sends heartbeats costs 12 KiB/s. */
const EACH_BYTES_PER_MS = 32;
/** Rates allowed on top of EACH_BYTES_PER_MS per member. */
const INSTANCE_BYTES_PER_MS = 2 * BYTES_PER_MS;
const GROUP_BYTES_PER_MS = BYTES_PER_MS;
/** The cost factor rises by one for each such period until the quota is full again. */
const FACTOR_MS = 1000;
const MAX_FACTOR = 32;
/** What a sender may send without a higher cost, whatever the others send. */
const SHARE = new RateLimit({ perSecond: LINK_RATE.perSecond / MAX_FACTOR, burst: BURST_BYTES });
/** The cost of a connection: authentication, the upgrade, its greeting. */
const CONNECTION_BYTES = 64 * 1024;
/** The connection of an agent, and a broken one that it replaces. */
const MAX_ARRIVING = 2;
/** A whole fleet may be one group; a quarter of the places stays for others. */
const MAX_ARRIVING_OF_GROUP = (3 * MAX_CONCURRENT_ADMISSIONS) / 4;
const MIN_GROUPS = 100;
/** Senders without a connection that are remembered because their quota is not full again. */
const MAX_ABSENT = 50_000;

/**
 * Who sends: the server in the path, and the group of those who could also send in its name
 * (`senderGroupOf`).
 */
export interface Sender {
  serverUuid: string;
  group?: string | undefined;
}

/** What many senders cost together. */
class SharedQuota {
  readonly #bytesPerMs: number;
  #members = 0;
  #arriving = 0;
  #fullAt = 0;

  constructor(bytesPerMs: number) {
    this.#bytesPerMs = bytesPerMs;
  }

  join(): void {
    this.#members += 1;
  }

  leave(): void {
    this.#members -= 1;
  }

  charge(cost: number, now: number): void {
    const rate = this.#bytesPerMs + this.#members * EACH_BYTES_PER_MS;
    this.#fullAt = Math.min(Math.max(this.#fullAt, now) + cost / rate, now + MAX_FACTOR * FACTOR_MS);
  }

  addArriving(count: number): void {
    this.#arriving += count;
  }

  get hasTooManyArriving(): boolean {
    return this.#arriving >= MAX_ARRIVING_OF_GROUP;
  }

  costFactor(now: number): number {
    return Math.max(1, (this.#fullAt - now) / FACTOR_MS);
  }

  /** Has no connection and its whole quota, so it can be forgotten. */
  isUnused(now: number): boolean {
    return this.#members === 0 && this.#fullAt <= now;
  }
}

/**
 * The quota of one sender over all its connections; otherwise each would begin with a whole one.
 */
export class SenderQuota implements ReadQuota {
  readonly key: string;
  readonly instance: SharedQuota;
  group: SharedQuota | undefined;
  connections = 0;
  /** Connections whose session does not work yet. */
  #arriving = 0;
  /** Two times, and no limiters: with those each quota would take twice the memory. */
  #fullAt = 0;
  /** When its share is whole again. */
  #shareAt = 0;

  constructor(key: string, instance: SharedQuota) {
    this.key = key;
    this.instance = instance;
  }

  charge(cost: number, now: number): number {
    // A single read may cost far more than a burst; that must not use up the quota of the others.
    const charged = Math.min(cost, Math.max(0, BURST_BYTES + LINK_RATE.left(this.#fullAt, now)));
    this.instance.charge(charged, now);
    this.group?.charge(charged, now);
    const share = Math.min(cost, Math.max(0, SHARE.left(this.#shareAt, now)));
    this.#shareAt = SHARE.charge(share, this.#shareAt, now);
    const ofGroup = cost * (this.group?.costFactor(now) ?? 1);
    const multiplied = Math.max(share + (cost - share) * this.instance.costFactor(now), ofGroup);
    this.#fullAt = LINK_RATE.charge(multiplied, this.#fullAt, now);
    return this.pauseMs(now);
  }

  /** Counts a connection as arriving until the result is called, which calls `settle`. */
  arrive(settle: () => void): () => void {
    const { group } = this;
    this.#arriving += 1;
    group?.addArriving(1);
    let isArriving = true;
    return () => {
      settle();
      if (!isArriving) return;
      isArriving = false;
      this.#arriving -= 1;
      group?.addArriving(-1);
    };
  }

  get hasTooManyArriving(): boolean {
    return this.#arriving >= MAX_ARRIVING;
  }

  pauseMs(now: number): number {
    return LINK_RATE.waitMs(0, this.#fullAt, now);
  }

  /** Has no connection and its whole quota, so it can be forgotten. */
  isUnused(now: number): boolean {
    return this.connections === 0 && this.#fullAt <= now && this.#shareAt <= now;
  }
}

export class SenderQuotas {
  readonly #instance = new SharedQuota(INSTANCE_BYTES_PER_MS);
  readonly #ofGroups = new Map<string, SharedQuota>();
  /** The number of groups at which unused groups are forgotten. */
  #forgetAt = MIN_GROUPS;
  readonly #connected = new Map<string, SenderQuota>();
  /** Senders without a connection, in the order in which they left. */
  readonly #absent = new BoundedMap<string, SenderQuota>(MAX_ABSENT);

  /** The present factor for the cost of input beyond a sender's share. */
  costFactor(now: number): number {
    return this.#instance.costFactor(now);
  }

  /** How many groups are remembered. */
  get groups(): number {
    return this.#ofGroups.size;
  }

  /** How long this sender must wait until it may connect. */
  pauseMsOf(sender: Sender, now: number): number {
    return this.#find(keyOf(sender))?.pauseMs(now) ?? 0;
  }

  /** Whether the sender, or its group, has the maximum number of connections without a session. */
  hasTooManyArriving(sender: Sender): boolean {
    const { group } = sender;
    const ofGroup = group === undefined ? undefined : this.#ofGroups.get(group);
    return this.#find(keyOf(sender))?.hasTooManyArriving === true || ofGroup?.hasTooManyArriving === true;
  }

  /** Counts and charges a connection of this sender until `leave` with the returned quota. */
  join(sender: Sender, now: number): SenderQuota {
    const key = keyOf(sender);
    const quota = this.#find(key) ?? new SenderQuota(key, this.#instance);
    quota.group = this.#ofGroup(sender.group, now);
    this.#absent.delete(key);
    this.#connected.set(key, quota);
    quota.connections += 1;
    quota.instance.join();
    quota.group?.join();
    quota.charge(CONNECTION_BYTES, now);
    return quota;
  }

  leave(quota: SenderQuota, now: number): void {
    quota.connections -= 1;
    quota.instance.leave();
    quota.group?.leave();
    if (quota.connections > 0) return;
    this.#connected.delete(quota.key);
    this.#absent.set(quota.key, quota);
    for (const oldest of this.#absent.values()) {
      if (!oldest.isUnused(now)) return;
      this.#absent.delete(oldest.key);
    }
  }

  #find(key: string): SenderQuota | undefined {
    return this.#connected.get(key) ?? this.#absent.get(key);
  }

  #ofGroup(group: string | undefined, now: number): SharedQuota | undefined {
    if (group === undefined) return undefined;
    const known = this.#ofGroups.get(group);
    if (known !== undefined) return known;
    if (this.#ofGroups.size >= this.#forgetAt) this.#forgetUnusedGroups(now);
    const own = new SharedQuota(GROUP_BYTES_PER_MS);
    this.#ofGroups.set(group, own);
    return own;
  }

  /** Seldom: in a trusted network, each agent is a group. */
  #forgetUnusedGroups(now: number): void {
    for (const [group, own] of this.#ofGroups) if (own.isUnused(now)) this.#ofGroups.delete(group);
    this.#forgetAt = Math.max(MIN_GROUPS, 2 * this.#ofGroups.size);
  }
}

/**
 * Separate keys, so that somebody with a token for several servers, or in a trusted network, cannot
 * use up the quota of an agent with a token of its own.
 */
function keyOf({ serverUuid, group }: Sender): string {
  return group === undefined ? serverUuid : `${group}/${serverUuid}`;
}

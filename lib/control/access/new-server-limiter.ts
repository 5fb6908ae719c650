/**
 * Limits how many servers one caller may create. An agent's token without a server of its own, or
 * an address of a trusted network, is valid for any server, including unknown ones. Counts the
 * servers of the last hour, each once however often it connects, because the database may be
 * unreachable when the server should be stored. Created by `app.ts`; asked when a new server's
 * agent connects, or posts its sysinfo.
 */

import { CnapiError } from '../../platform/errors.ts';
import { BoundedMap } from '../../platform/limiting/bounded-map.ts';
import { normalizeAddress, sourceOf } from '../../platform/network/networks.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { Actor } from './token.ts';

/** 429: a caller that is valid for any server has created too many. */
class TooManyNewServersError extends CnapiError {
  readonly retryAfterMs: number;

  constructor(limit: number, retryAfterMs: number) {
    const message =
      `This caller has already made ${limit} new servers in an hour on this instance (newServersPerHour in the ` +
      'configuration); a token for one server (--server) has no such limit';
    super('TooManyNewServers', 429, message, { retryAfterSeconds: Math.ceil(retryAfterMs / 1000) });
    this.retryAfterMs = retryAfterMs;
  }
}

const HOUR_MS = 3_600_000;
/**
 * Maximum number of callers counted. Above it, the count of the caller seen longest ago is dropped.
 */
const MAX_COUNTED_CALLERS = 1_000;

export class NewServerLimiter {
  readonly #limit: number;
  readonly #clock: Pick<Clock, 'now'>;
  /** When each server connected, the earliest first, by caller. */
  readonly #byCaller = new BoundedMap<string, Map<string, number>>(MAX_COUNTED_CALLERS);
  #refused = 0;

  /** `newServersPerHour` 0: no limit. */
  constructor({ newServersPerHour, clock }: { newServersPerHour: number; clock: Pick<Clock, 'now'> }) {
    this.#limit = newServersPerHour;
    this.#clock = clock;
  }

  /** Refused attempts so far; a server counts each time it tries. */
  get refused(): number {
    return this.#refused;
  }

  /**
   * Counts an unknown server; returns why it must not be created, if so. `address`: the peer's,
   * from its socket.
   */
  refusalOf(actor: Actor, address: string, serverUuid: string): TooManyNewServersError | undefined {
    if (this.#limit === 0 || actor.serverUuid !== undefined) return undefined;
    const caller = actor.tokenUuid ?? sourceOf(normalizeAddress(address));
    const servers = this.#byCaller.get(caller) ?? new Map<string, number>();
    this.#byCaller.set(caller, servers);
    if (servers.has(serverUuid)) return undefined;
    const now = this.#clock.now();
    for (const [uuid, at] of servers) {
      if (now - at < HOUR_MS) break;
      servers.delete(uuid);
    }
    const [earliest = now] = servers.values();
    if (servers.size < this.#limit) {
      servers.set(serverUuid, now);
      return undefined;
    }
    this.#refused += 1;
    return new TooManyNewServersError(this.#limit, Math.ceil(earliest + HOUR_MS - now));
  }
}

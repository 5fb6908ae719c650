/**
 * Limits how many VMs of a server may change. Each change of a state is an event in the log of the
 * zone, and a report has up to 1,000 VMs, so the limit counts VMs and not reports. A server may
 * change 1,000 VMs in one report, however many it reports, so the restart of a server is shown as
 * it happens. The report that exceeds the limit is admitted; then none with changed VMs is, until
 * the rate has made up for it. Called by `report-queue.ts`.
 */
import { hash } from 'node:crypto';
import { BoundedMap } from '../../platform/limiting/bounded-map.ts';
import { RateLimit, RateLimiters } from '../../platform/limiting/rate-limiter.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { ServerReport } from './server.ts';

const CHANGES = new RateLimit({ perSecond: 5, burst: 1_000 });
/**
 * Servers whose last VMs are known, and their digests. All VMs of one that is not known count as
 * changed.
 */
const MAX_KNOWN = 20_000;
const MAX_CHARS = 64 * 1024 * 1024;
/** Characters of a digest, 96 bits: an agent cannot find a VM with the digest of another. */
const DIGEST_LENGTH = 24;

export class VmChangeLimiter {
  readonly #clock: Pick<Clock, 'now'>;
  /**
   * The digests of the VMs of the last reports that were admitted, in one text: 24 bytes for each
   * VM.
   */
  readonly #last = new BoundedMap<string, string>(MAX_KNOWN);
  #chars = 0;
  readonly #maxChars: number;
  readonly #limits = new RateLimiters(CHANGES);

  constructor(clock: Pick<Clock, 'now'>, maxChars = MAX_CHARS) {
    this.#clock = clock;
    this.#maxChars = maxChars;
  }

  /** `held`: VMs have changed, and the report may not be stored yet. */
  admit(serverUuid: string, vms: ServerReport['vms']): 'unchanged' | 'changed' | 'held' {
    const digests = digestsOf(vms);
    const changes = countChanges(this.#last.get(serverUuid) ?? '', digests);
    if (changes === 0) return 'unchanged';
    const limit = this.#limits.of(serverUuid);
    const now = this.#clock.now();
    if (limit.waitMs(now) > 0) return 'held';
    limit.charge(changes, now);
    this.#remember(serverUuid, digests);
    return 'changed';
  }

  #remember(serverUuid: string, digests: string): void {
    this.#forget(serverUuid);
    this.#chars += digests.length - (this.#last.set(serverUuid, digests)?.length ?? 0);
    for (const oldest of this.#last.keys()) {
      if (this.#chars <= this.#maxChars) break;
      this.#forget(oldest);
    }
  }

  #forget(serverUuid: string): void {
    this.#chars -= this.#last.get(serverUuid)?.length ?? 0;
    this.#last.delete(serverUuid);
  }
}

/** `parseReport` gives the fields of each VM in one order, so equal VMs have equal texts. */
function digestsOf(vms: ServerReport['vms']): string {
  return Object.entries(vms)
    .map((entry) => hash('sha256', JSON.stringify(entry)).slice(0, DIGEST_LENGTH))
    .join('');
}

/** A VM that has appeared in place of another one counts as one change. */
function countChanges(before: string, after: string): number {
  if (before === after) return 0;
  const [old, current] = [split(before), split(after)];
  return Math.max(countMissing(current, old), countMissing(old, current));
}

const split = (digests: string): Set<string> =>
  new Set(
    Array.from({ length: digests.length / DIGEST_LENGTH }, (_, n) =>
      digests.slice(n * DIGEST_LENGTH, (n + 1) * DIGEST_LENGTH),
    ),
  );

const countMissing = (some: ReadonlySet<string>, others: ReadonlySet<string>): number =>
  [...some].filter((one) => !others.has(one)).length;

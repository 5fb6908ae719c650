/**
 * Remembers the addresses from which servers' agents post: tasks are sent to no other address,
 * unless its network was configured (agent-address.ts). A sysinfo's address is written at once,
 * because a task may follow it. A heartbeat's is written within seconds, and only if this instance
 * has not written it within the hour. If the database fails, the write is tried again.
 */

import { BoundedMap } from '../../platform/bounded-map.ts';
import type { Clock } from '../../platform/clock.ts';
import type { Logger } from '../../platform/log.ts';
import { Loop } from '../../platform/loop.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import { recordSources, type Source } from './source-store.ts';

interface AgentSourcesDeps {
  database: Queryable;
  clock: Clock;
  log: Logger;
}

const FLUSH_MS = 2_000;
const AGAIN_MS = 3_600_000;
/** The address in a sysinfo may have been evicted since it was last recorded. */
const SYSINFO_AGAIN_MS = 60_000;
/** With more, the one that was written longest ago is written again at its next post. */
const MAX_KNOWN = 200_000;
const MAX_PENDING = 10_000;
const MAX_BATCH = 1_000;

export class AgentSources {
  readonly #deps: AgentSourcesDeps;
  /** When each was written, by server and address; the oldest write comes first. */
  readonly #known = new BoundedMap<string, number>(MAX_KNOWN);
  readonly #pending = new Map<string, Source>();
  readonly #loop: Loop;

  constructor(deps: AgentSourcesDeps) {
    this.#deps = deps;
    this.#loop = new Loop({
      ...deps,
      what: 'legacy agents: recording of their addresses',
      work: () => this.#flush(),
      pauseMs: FLUSH_MS,
      first: 'pause',
    });
  }

  start(): void {
    this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** A heartbeat came from this address. Costs one map lookup. */
  heard(serverUuid: string, address: string): void {
    const key = keyOf({ serverUuid, address });
    if (this.#isKnown(key) || this.#pending.size >= MAX_PENDING) return;
    this.#pending.set(key, { serverUuid, address });
  }

  /** A sysinfo came from this address. @throws DatabaseUnavailableError */
  async record(serverUuid: string, address: string): Promise<void> {
    const source = { serverUuid, address };
    if (!this.#isKnown(keyOf(source), SYSINFO_AGAIN_MS)) await this.#write([source]);
  }

  async #flush(): Promise<void> {
    while (this.#pending.size > 0) {
      const batch = [...this.#pending].slice(0, MAX_BATCH);
      await this.#write(batch.map(([, source]) => source));
      for (const [key] of batch) this.#pending.delete(key);
    }
  }

  async #write(sources: readonly Source[]): Promise<void> {
    const stored = await recordSources(this.#deps.database, sources);
    const now = this.#deps.clock.now();
    for (const source of stored) this.#known.set(keyOf(source), now);
  }

  #isKnown(key: string, againMs = AGAIN_MS): boolean {
    const writtenAt = this.#known.get(key);
    return writtenAt !== undefined && this.#deps.clock.now() - writtenAt < againMs;
  }
}

const keyOf = ({ serverUuid, address }: Source): string => `${serverUuid} ${address}`;

/**
 * Remembers the addresses from which servers' agents post: tasks are sent to no other address,
 * unless its network was configured (agent-address.ts). A sysinfo's address is written immediately,
 * because a task may follow it. A heartbeat's is written within seconds, and only if this instance
 * has not written it within the hour. If the database fails, the write is tried again; an address
 * that it refuses is dropped, and comes again with the next post.
 */

import { messageOf } from '../../platform/errors.ts';
import { BoundedMap } from '../../platform/limiting/bounded-map.ts';
import type { Logger } from '../../platform/log.ts';
import { BatchQueue } from '../../platform/postgres/batches/batch-queue.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { type AgentSource, recordSources } from './source-store.ts';

interface AgentSourcesDeps {
  database: Queryable;
  clock: Clock;
  log: Logger;
}

const FLUSH_MS = 2_000;
const AGAIN_MS = 3_600_000;
/** The address in a sysinfo may have been evicted since it was last recorded. */
const SYSINFO_AGAIN_MS = 60_000;
/** Maximum number of remembered addresses. A forgotten one is written again at its next post. */
const MAX_KNOWN = 200_000;
const MAX_PENDING = 10_000;
const MAX_BATCH = 1_000;

export class AgentSources {
  readonly #deps: AgentSourcesDeps;
  /** When each was written, by server and address; the oldest write comes first. */
  readonly #known = new BoundedMap<string, number>(MAX_KNOWN);
  readonly #heard: BatchQueue<AgentSource>;

  constructor(deps: AgentSourcesDeps) {
    this.#deps = deps;
    this.#heard = new BatchQueue<AgentSource>({
      ...deps,
      what: 'addresses of legacy agents',
      keyOf,
      join: (_, later) => later,
      maxBatch: MAX_BATCH,
      minIntervalMs: FLUSH_MS,
      work: async (sources, database) => void (await this.#write(sources, database)),
      onRefused: (source, error) => this.#drop(source, error),
    });
  }

  async stop(): Promise<void> {
    await this.#heard.stop();
  }

  /** A heartbeat came from this address. Costs one map lookup. */
  heard(serverUuid: string, address: string): void {
    const source = { serverUuid, address };
    if (!this.#isKnown(keyOf(source)) && this.#heard.size < MAX_PENDING) this.#heard.add(source, FLUSH_MS);
  }

  /** A sysinfo came from this address. @throws DatabaseUnavailableError */
  async record(serverUuid: string, address: string): Promise<void> {
    const source = { serverUuid, address };
    if (!this.#isKnown(keyOf(source), SYSINFO_AGAIN_MS)) await this.#write([source], this.#deps.database);
  }

  async #write(sources: readonly AgentSource[], database: Queryable): Promise<void> {
    const stored = await recordSources(database, sources);
    const now = this.#deps.clock.now();
    for (const source of stored) this.#known.set(keyOf(source), now);
  }

  #drop({ serverUuid, address }: AgentSource, error: unknown): undefined {
    const fields = { server_uuid: serverUuid, address, reason: messageOf(error) };
    this.#deps.log.error(fields, 'legacy agents: an address could not be stored');
  }

  #isKnown(key: string, againMs = AGAIN_MS): boolean {
    const writtenAt = this.#known.get(key);
    return writtenAt !== undefined && this.#deps.clock.now() - writtenAt < againMs;
  }
}

const keyOf = ({ serverUuid, address }: AgentSource): string => `${serverUuid} ${address}`;

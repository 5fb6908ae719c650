/**
 * Stores the sysinfo that agents send: one at a time for each connection, the latest one last. An
 * agent sends it again only in its next session, so storing it is retried while the database is
 * unreachable and the connection is open. Owned by the link server.
 */
import { isTemporary, messageOf } from '../../platform/errors.ts';
import { cutForLog } from '../../platform/log.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { SysinfoFrame } from '../../protocol/link/frames.ts';
import type { AgentConnection } from './connection.ts';
import { KeyedCoalescer } from './keyed-coalescer.ts';

interface SysinfoWriterDeps {
  servers: { recordSysinfo(serverUuid: string, sysinfo: Record<string, unknown>, digest: string): Promise<unknown> };
  clock: Clock;
}

const RETRY_MS = 2_000;
/** Limit for all sysinfos that wait for the database; one has about 40 KB. */
const MAX_BYTES_HELD = 64 * 1024 * 1024;

export class SysinfoWriter {
  readonly #deps: SysinfoWriterDeps;
  readonly #latest = new KeyedCoalescer<AgentConnection>();
  #bytesHeld = 0;

  constructor(deps: SysinfoWriterDeps) {
    this.#deps = deps;
  }

  /** `size`: characters of the frame. */
  write(connection: AgentConnection, frame: SysinfoFrame, size: number): void {
    this.#latest.run(connection, () => this.#write(connection, frame, size));
  }

  async #write(connection: AgentConnection, { sysinfo, digest }: SysinfoFrame, size: number): Promise<void> {
    const { servers, clock } = this.#deps;
    for (let tries = 1; connection.isOpen || tries === 1; tries++) {
      try {
        await servers.recordSysinfo(connection.serverUuid, sysinfo, digest);
        return;
      } catch (error) {
        const isHeld = isTemporary(error) && this.#bytesHeld + size <= MAX_BYTES_HELD;
        if (tries === 1 || !isHeld) {
          const fields = { reason: cutForLog(messageOf(error)), tried_again: isHeld };
          connection.warn(fields, 'server: its sysinfo was not stored');
        }
        if (!isHeld) return;
        this.#bytesHeld += size;
        await clock.sleep(RETRY_MS);
        this.#bytesHeld -= size;
      }
    }
  }
}

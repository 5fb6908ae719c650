/**
 * The pause of one agent (pause.ts), with its lease on disk. Owned by main.ts, or by the Agent
 * itself where no disk keeps it. The file is apart from the journal, so that an older version of
 * the agent can still read its journal.
 */
import type { Logger } from '../../platform/log.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { RecordFiles } from '../records/record-files.ts';
import { isPausedAt, type KeptLease, leftOf, OPEN, type Pause, type PauseEvent, stepPause } from './pause.ts';

export type LeaseRecord = KeptLease & { id: typeof LEASE };

interface PauseKeeperDeps {
  clock: Clock;
  log: Logger;
  bootId: string;
  /** Undefined: the lease is forgotten when the agent restarts. */
  files: RecordFiles<LeaseRecord> | undefined;
}

const LEASE = 'lease';

export class PauseKeeper {
  readonly #deps: PauseKeeperDeps;
  #pause: Pause = OPEN;
  /** The last change; the next one begins after it. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(deps: PauseKeeperDeps) {
    this.#deps = deps;
  }

  /** Continues the lease of a former process. A record that cannot be read counts as none. */
  async start(): Promise<void> {
    const { clock, log, bootId, files } = this.#deps;
    const { records, damaged } = (await files?.load()) ?? { records: [], damaged: [] };
    for (const { reason } of damaged) log.warn({ reason }, 'agent: the lease of its pause cannot be read');
    const [kept] = records;
    const leftMs = kept === undefined ? 0 : leftOf(kept, { bootId, wallTime: clock.wallTime() });
    if (leftMs === 0) return files?.remove(LEASE);
    this.#pause = stepPause(this.#pause, { type: 'lease', durationMs: leftMs }, clock.now());
    log.info({ left_ms: leftMs }, 'agent: still paused');
  }

  get isPaused(): boolean {
    return isPausedAt(this.#pause, this.#deps.clock.now());
  }

  /** Resolves when the change survives a restart, and rejects if the disk does not take it. */
  change(event: PauseEvent): Promise<void> {
    const changed = this.#turn.then(() => this.#change(event));
    this.#turn = changed.catch(() => undefined);
    return changed;
  }

  async #change(event: PauseEvent): Promise<void> {
    const { clock, log, bootId, files } = this.#deps;
    if (event.type === 'lease') {
      const endsAtWallTime = clock.wallTime() + event.durationMs;
      await files?.write({ id: LEASE, durationMs: event.durationMs, endsAtWallTime, bootId });
    }
    const before = this.isPaused;
    this.#pause = stepPause(this.#pause, event, clock.now());
    if (before !== this.isPaused) log.info({ event: event.type }, `agent: ${before ? 'resumed' : 'paused'}`);
    if (event.type === 'end-lease' || event.type === 'resume') await files?.remove(LEASE);
  }
}

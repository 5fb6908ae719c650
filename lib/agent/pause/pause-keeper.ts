/**
 * The pause of one agent (pause.ts), with its drain on disk. Owned by main.ts, or by the Agent
 * itself where no disk keeps it. The file is apart from the journal, so that an older version of
 * the agent can still read its journal.
 */
import type { Logger } from '../../platform/log.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { RecordFiles } from '../records/record-files.ts';
import { TaskFailure } from '../task-failure.ts';
import {
  changingJob,
  isDrainedAt,
  isPausedAt,
  type KeptDrain,
  OPEN,
  type Pause,
  type PauseEvent,
  pauseAfter,
  reasonPausedAt,
  stepPause,
} from './pause.ts';

export type DrainRecord = KeptDrain & { id: typeof DRAIN };

interface PauseKeeperDeps {
  clock: Clock;
  log: Logger;
  bootId: string;
  /** Undefined: the drain is forgotten when the agent restarts. */
  files: RecordFiles<DrainRecord> | undefined;
}

const DRAIN = 'drain';

export class PauseKeeper {
  readonly #deps: PauseKeeperDeps;
  #pause: Pause = OPEN;
  /** The last change; the next one begins after it. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(deps: PauseKeeperDeps) {
    this.#deps = deps;
  }

  /** Continues the drain of a former process. A record that cannot be read counts as none. */
  async start(): Promise<void> {
    const { clock, log, bootId, files } = this.#deps;
    const { records, damaged } = (await files?.load()) ?? { records: [], damaged: [] };
    for (const { reason } of damaged) log.warn({ reason }, 'agent: the record of its drain cannot be read');
    const [kept] = records;
    const now = clock.now();
    this.#pause = kept === undefined ? OPEN : pauseAfter(kept, { bootId, wallTime: clock.wallTime(), now });
    const { drain } = this.#pause;
    if (drain === undefined) return files?.remove(DRAIN);
    log.info({ workflow_job: drain.jobId, left_ms: drain.endsAt - now }, 'agent: still paused');
  }

  get isPaused(): boolean {
    return isPausedAt(this.#pause, this.#deps.clock.now());
  }

  /** Who holds the pause, and how it ends; undefined: the agent is not paused. */
  get reasonPaused(): string | undefined {
    return reasonPausedAt(this.#pause, this.#deps.clock.now());
  }

  /** Whether the server drains for this job. */
  isDrainedFor(jobId: string): boolean {
    return isDrainedAt(this.#pause, jobId, this.#deps.clock.now());
  }

  /**
   * Resolves when the change survives a restart, and rejects if the disk does not take it.
   * @throws TaskFailure for a `resume` while the server is rebooted or reset
   */
  change(event: PauseEvent): Promise<void> {
    const changed = this.#turn.then(() => this.#change(event));
    this.#turn = changed.catch(() => undefined);
    return changed;
  }

  async #change(event: PauseEvent): Promise<void> {
    const { clock, log, bootId, files } = this.#deps;
    const now = clock.now();
    const changing = changingJob(this.#pause, now);
    if (event.type === 'resume' && changing !== undefined) throw notResumed(changing);
    const next = stepPause(this.#pause, event, now);
    const { drain } = next;
    const isKept = drain?.jobId === this.#pause.drain?.jobId && drain?.endsAt === this.#pause.drain?.endsAt;
    if (drain !== undefined && !isKept) {
      const { jobId, durationMs } = drain;
      await files?.write({ id: DRAIN, jobId, durationMs, endsAtWallTime: clock.wallTime() + durationMs, bootId });
    }
    const before = this.isPaused;
    const hasEnded = this.#pause.drain !== undefined && drain === undefined;
    this.#pause = next;
    if (before !== this.isPaused) log.info({ event: event.type }, `agent: ${before ? 'resumed' : 'paused'}`);
    if (hasEnded) await files?.remove(DRAIN);
  }
}

const notResumed = (jobId: string) =>
  new TaskFailure(
    'ServerChanging',
    `Workflow job ${jobId} reboots or resets this server at present, and what the agent took now would be lost. ` +
      `Wait for the job, or cancel it with: cnapi workflow cancel ${jobId}`,
  );

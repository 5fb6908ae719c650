/**
 * Goes over this instance's sessions at each healthy tick: probes the quiet ones and loses the
 * silent ones. After this instance took a new run, it also moves the rows of sessions from which
 * bytes have arrived since to that run. As long as bytes arrive from all agents, it runs no
 * statement and allocates nothing (law 3).
 */
import { chunksOf } from '../../../platform/chunks.ts';
import { messageOf } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { HealthyTimer } from '../../../platform/time/healthy-timer.ts';
import { renewRun } from '../status/roster-store.ts';
import type { Session, SessionTable } from './session.ts';
import type { SessionLosses } from './session-losses.ts';
import { countTick, endSilence, isOverdue, type SilenceLimits } from './silence.ts';

interface SilenceDetectorDeps {
  database: Queryable;
  sessions: SessionTable;
  sessionLosses: SessionLosses;
  healthyTimer: HealthyTimer;
  run: () => string;
  limits: SilenceLimits;
  log: Logger;
}

const MAX_BATCH = 2_000;

export class SilenceDetector {
  readonly #deps: SilenceDetectorDeps;
  /**
   * When this process took its present run, by its own clock; before the first change of runs, no
   * session needs renewing.
   */
  #renewedAt = Number.POSITIVE_INFINITY;
  #renewing: Promise<void> | undefined;
  /** Sessions whose heartbeats were overdue at the last healthy tick. */
  quiet = 0;
  /** Healthy time since the sessions that are not read were last probed. */
  #unreadMs = 0;

  constructor(deps: SilenceDetectorDeps) {
    this.#deps = deps;
    deps.healthyTimer.onTick((tickMs) => this.#tick(tickMs));
  }

  /**
   * The instance took a new run at `now`: only bytes that arrive later prove that a session is
   * alive.
   */
  runRenewed(now: number): void {
    this.#renewedAt = now;
  }

  async stop(): Promise<void> {
    await this.#renewing;
  }

  #tick(tickMs: number): void {
    const run = this.#deps.run();
    let isRenewalDue = false;
    let quiet = 0;
    // An agent that is not read gets no answers to its heartbeats; without the probes it would
    // leave.
    this.#unreadMs += tickMs;
    const isProbeOfUnreadDue = this.#unreadMs >= this.#deps.limits.probeMs;
    if (isProbeOfUnreadDue) this.#unreadMs = 0;
    for (const session of this.#deps.sessions.all()) {
      if (session.socket.isUnread) {
        endSilence(session);
        if (isProbeOfUnreadDue) session.socket.probe();
        continue;
      }
      const due = countTick(session, tickMs, this.#deps.limits);
      if (isOverdue(session, tickMs, this.#deps.limits)) quiet += 1;
      if (due === 'probe') session.socket.probe();
      else if (due === 'silent') this.#deps.sessionLosses.lose(session, 'silent');
      else if (session.run !== run && session.heardAt > this.#renewedAt) isRenewalDue = true;
    }
    this.quiet = quiet;
    if (!isRenewalDue) return;
    this.#renewing ??= this.#renew(run).finally(() => {
      this.#renewing = undefined;
    });
  }

  async #renew(run: string): Promise<void> {
    const due = [...this.#deps.sessions.all()].filter((one) => one.run !== run && one.heardAt > this.#renewedAt);
    try {
      for (const some of chunksOf(due, MAX_BATCH)) await this.#renewBatch(run, some);
    } catch (error) {
      this.#deps.log.warn(
        { run, reason: messageOf(error) },
        'session: some sessions could not be moved to the new run; trying again',
      );
    }
  }

  /** Sessions whose rows are locked follow at one of the next ticks. */
  async #renewBatch(run: string, batch: readonly Session[]): Promise<void> {
    const { applied, locked } = await renewRun(this.#deps.database, run, batch);
    const [renewed, inUse] = [new Set(applied), new Set(locked)];
    for (const session of batch) {
      if (inUse.has(session.serverUuid)) continue;
      if (!renewed.has(session.serverUuid)) {
        this.#deps.sessionLosses.supersede(session, 'its row went to another session while this run counted as dead');
        continue;
      }
      this.#deps.sessions.moveToRun(session, run);
      this.#deps.sessionLosses.followRun(session);
    }
    if (renewed.size > 0) this.#deps.log.info({ run, sessions: renewed.size }, 'session: old run -> new run');
  }
}

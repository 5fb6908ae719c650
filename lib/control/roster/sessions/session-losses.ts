/**
 * Ends sessions and writes the resulting status changes: `unknown` where the session's run and
 * epoch still stand. It runs one set-based statement at a time, on a connection of its own. A
 * locked row is skipped and written later. Changes that could not be written are kept until the
 * database is back; the guard makes a late one harmless. An ended session never becomes live again:
 * only an accept sets `running`.
 *
 *     session live ──lose(reason)──▶ ended, change queued ──statement──▶ unknown (or no effect)
 *                  └─supersede()──▶ ended, no status change
 */

import type { LogFields, Logger } from '../../../platform/log.ts';
import { BatchQueue } from '../../../platform/postgres/batches/batch-queue.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import { type LossReason, STATUS_REASONS } from '../status/authority-row.ts';
import { recordLosses, type SessionLoss } from '../status/roster-store.ts';
import { TransitionLog } from '../status/transition-log.ts';
import type { Session, SessionTable } from './session.ts';

interface SessionLossesDeps {
  /** A database of one connection with short timeouts; nothing else uses it. */
  database: Queryable;
  sessions: SessionTable;
  cnapiUuid: string;
  clock: Clock;
  log: Logger;
}

/** Losses of one statement: bounds its locks and its time. */
const MAX_BATCH = 2_000;

export class SessionLosses {
  readonly #deps: SessionLossesDeps;
  readonly #losses: BatchQueue<SessionLoss>;
  readonly #transitions: TransitionLog;
  #isStopped = false;

  constructor(deps: SessionLossesDeps) {
    this.#deps = deps;
    this.#transitions = new TransitionLog(deps);
    this.#losses = new BatchQueue<SessionLoss>({
      ...deps,
      what: 'status changes of lost sessions',
      keyOf: ({ serverUuid }) => serverUuid,
      // Only the loss of the highest epoch can still apply.
      join: (earlier, later) => (earlier.epoch > later.epoch ? earlier : later),
      maxBatch: MAX_BATCH,
      work: (losses, database) => this.#record(losses, database),
    });
  }

  /** Losses that are not written yet. */
  get queued(): number {
    return this.#losses.size;
  }

  /** Ends the session; its server becomes `unknown` unless its agent is accepted elsewhere. */
  lose(session: Session, reason: LossReason, detail: string = STATUS_REASONS[reason]): void {
    if (!this.#end(session, detail)) return;
    // The log needs no line for each agent that is left behind.
    if (this.#isStopped) return;
    session.lostFor = reason;
    this.#write(session, reason);
    this.#log(session, { reason, detail }, 'session: live -> ended');
  }

  /**
   * The row of a session that was lost meanwhile has moved to a new run: queues the status change
   * for that run.
   */
  followRun(session: Session): void {
    if (session.lostFor !== undefined) this.#write(session, session.lostFor);
  }

  /** Ends the session because another has replaced it: no status change. */
  supersede(session: Session, reason: string): void {
    if (!this.#end(session, reason)) return;
    this.#log(session, { reason }, 'session: live -> superseded');
  }

  /**
   * The server's agent was accepted here again. A queued status change cannot apply any more if the
   * new epoch is higher. After a failover to a standby that was behind, the epoch may not be
   * higher, and the change would apply.
   */
  forget(serverUuid: string): void {
    this.#losses.delete(serverUuid);
  }

  /**
   * Stops all writes: an instance that leaves does not change the status of servers whose agents it
   * leaves behind.
   */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#losses.stop();
  }

  #write({ serverUuid, run, epoch }: Session, reason: LossReason): void {
    this.#losses.add({ serverUuid, run, epoch, reason });
  }

  /** An agent that reconnects again and again does not fill the disk. */
  #log({ serverUuid: server_uuid, epoch, socket }: Session, fields: LogFields, message: string): void {
    if (socket.mayLog()) this.#deps.log.info({ server_uuid, epoch, ...fields }, message);
  }

  #end(session: Session, reason: string): boolean {
    if (!this.#deps.sessions.end(session)) return false;
    session.socket.terminate(reason);
    return true;
  }

  /** Returns the losses whose rows are locked. */
  async #record(losses: readonly SessionLoss[], database: Queryable): Promise<SessionLoss[]> {
    const { applied, locked } = await recordLosses(database, this.#deps.cnapiUuid, losses);
    const reasons = new Map(losses.map((loss) => [loss.serverUuid, loss.reason]));
    const lost = [...applied].map((server_uuid) => ({ server_uuid, reason: reasons.get(server_uuid) }));
    this.#transitions.write(lost, 'server: running -> unknown');
    const inUse = new Set(locked);
    return losses.filter(({ serverUuid }) => inUse.has(serverUuid));
  }
}

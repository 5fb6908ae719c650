/**
 * Ends sessions and writes what that means for their servers: `unknown` where the session's run and epoch still stand. One
 * set-based statement at a time, on a connection of its own; what could not be written is kept and written when the
 * database is back (the guard makes a late one harmless). Once ended, a session never comes back: only an accept sets
 * `running`.
 *
 *     session live ──lose(reason)──▶ ended, verdict queued ──statement──▶ unknown, or somebody else's by then
 *                  └─supersede()──▶ ended, no verdict
 */
import { DatabaseUnavailableError, messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Queryable } from '../moray/database.ts';
import type { Clock } from '../ports/clock.ts';
import { type LossReason, STATUS_REASONS } from './roster.ts';
import { type Loss, recordLosses } from './roster-store.ts';
import type { Session, SessionTable } from './session.ts';

export interface VerdictsDeps {
  /** A database of one connection, short timeouts, used by nothing else. */
  database: Queryable;
  sessions: SessionTable;
  cnapiUuid: string;
  clock: Clock;
  log: Logger;
}

const RETRY_MS = 500;
/** Losses of one statement: bounds its locks and its time. */
const MAX_BATCH = 2_000;

export class Verdicts {
  readonly #deps: VerdictsDeps;
  readonly #stopping = new AbortController();
  /** By server. */
  readonly #queued = new Map<string, Loss>();
  #writing: Promise<void> | undefined;
  #isFailing = false;

  constructor(deps: VerdictsDeps) {
    this.#deps = deps;
  }

  get queued(): number {
    return this.#queued.size;
  }

  /** The session is over and its server is `unknown` unless its agent is accepted elsewhere. */
  lose(session: Session, reason: LossReason, detail: string = STATUS_REASONS[reason]): void {
    if (!this.#end(session, detail)) return;
    if (this.#stopping.signal.aborted) return;
    session.lostFor = reason;
    this.#queue(session, reason);
    this.#deps.log.info(
      { server_uuid: session.serverUuid, epoch: session.epoch, reason, detail },
      'session: live -> ended',
    );
  }

  /** The row of a session that was lost meanwhile has come under a new run: the verdict is of that one. */
  followRun(session: Session): void {
    if (session.lostFor !== undefined && !this.#stopping.signal.aborted) this.#queue(session, session.lostFor);
  }

  /** The session is over because another has its place: no verdict. */
  supersede(session: Session, why: string): void {
    if (!this.#end(session, why)) return;
    this.#deps.log.info({ server_uuid: session.serverUuid, epoch: session.epoch, why }, 'session: live -> superseded');
  }

  /**
   * The server's agent was accepted here again, by a higher epoch: a verdict that still waits could not apply. After a failover to a
   * standby that was behind, the epoch is perhaps not higher, and it would.
   */
  forget(serverUuid: string): void {
    this.#queued.delete(serverUuid);
  }

  /** From now on nothing is written: of the agents that a leaving instance leaves behind it has no verdicts. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#writing;
  }

  /** Of one server the verdict of the highest epoch is the one that can still apply. */
  #queue({ serverUuid, run, epoch }: Session, reason: LossReason): void {
    const queued = this.#queued.get(serverUuid);
    if (queued !== undefined && queued.epoch > epoch) return;
    this.#queued.set(serverUuid, { serverUuid, run, epoch, reason });
    this.#writing ??= this.#write();
  }

  #end(session: Session, why: string): boolean {
    if (!this.#deps.sessions.end(session)) return false;
    session.socket.terminate(why);
    return true;
  }

  async #write(): Promise<void> {
    while (this.#queued.size > 0 && !this.#stopping.signal.aborted) {
      const batch = [...this.#queued.values()].slice(0, MAX_BATCH);
      try {
        await this.#record(batch);
      } catch (error) {
        await this.#pauseAfter(error);
      }
    }
    // In the same turn as the look at the queue: a loss that comes next starts a write of its own.
    this.#writing = undefined;
  }

  async #record(batch: readonly Loss[]): Promise<void> {
    const applied = await recordLosses(this.#deps.database, this.#deps.cnapiUuid, batch);
    this.#isFailing = false;
    for (const loss of batch) if (this.#queued.get(loss.serverUuid) === loss) this.#queued.delete(loss.serverUuid);
    const reasons = new Map(batch.map((loss) => [loss.serverUuid, loss.reason]));
    for (const server_uuid of applied) {
      this.#deps.log.info({ server_uuid, reason: reasons.get(server_uuid) }, 'server: running -> unknown');
    }
  }

  async #pauseAfter(error: unknown): Promise<void> {
    if (!(error instanceof DatabaseUnavailableError)) {
      this.#deps.log.error({ err: error, queued: this.#queued.size }, 'verdicts: cannot be written, and should');
    } else if (!this.#isFailing) {
      this.#deps.log.warn(
        { queued: this.#queued.size, reason: messageOf(error) },
        'verdicts: cannot be written, kept for later',
      );
    }
    this.#isFailing = true;
    await this.#deps.clock.sleep(RETRY_MS, this.#stopping.signal);
  }
}

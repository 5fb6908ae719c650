/**
 * The slow poll of the roster. It compares this instance's sessions with the rows, both ways, and
 * looks for ownerless rows. So it finds changes that the bus did not announce, and rows that a dead
 * run left behind. Runs each `slowPollMs`, each second while a row is ownerless and does not only
 * wait for returns, and immediately when a run has ended. docs/design/roster.md, "Ownerless rows".
 */

import { chunksOf } from '../../../platform/chunks.ts';
import type { Logger } from '../../../platform/log.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import type { HealthyTimer } from '../../../platform/time/healthy-timer.ts';
import { Loop } from '../../../platform/time/loop.ts';
import { type AwaitedReturns, readAwaitedReturns } from '../membership/instance-store.ts';
import type { HeldRow } from '../status/authority-row.ts';
import {
  markOwnerlessUnknown,
  type PolledRow,
  pollRows,
  type RunIdentity,
  reasonOfOwnerless,
} from '../status/roster-store.ts';
import { TransitionLog } from '../status/transition-log.ts';
import { type OwnerlessRows, observeOwnerless } from './ownerless-rows.ts';
import type { Session, SessionTable } from './session.ts';
import type { SessionLosses } from './session-losses.ts';

interface ReaperDeps {
  database: Queryable;
  sessions: SessionTable;
  sessionLosses: SessionLosses;
  healthyTimer: HealthyTimer;
  writer: () => RunIdentity;
  /** Whether this instance may now change the status of servers that it never held. */
  mayMarkOthersUnknown: () => boolean;
  slowPollMs: () => number;
  ownerlessGraceMs: number;
  reconnectMaxMs: number;
  clock: Clock;
  log: Logger;
}

const OWNERLESS_POLL_MS = 1000;
/** The shortest pause between two polls, however often `trigger` is called. */
const MIN_PAUSE_MS = 200;
const MAX_BATCH = 2_000;

export class Reaper {
  readonly #deps: ReaperDeps;
  readonly #ownerless: OwnerlessRows;
  readonly #loop: Loop;
  readonly #transitions: TransitionLog;
  #isReading = false;
  #rowsAwaitingReturns = 0;
  /**
   * After how long the first of these rows waits no longer; 0 if the last poll did not learn it.
   */
  #waitMs = 0;

  constructor(deps: ReaperDeps) {
    this.#deps = deps;
    this.#transitions = new TransitionLog(deps);
    this.#ownerless = observeOwnerless(deps.ownerlessGraceMs);
    this.#loop = new Loop({
      ...deps,
      what: 'reaper: poll',
      work: () => this.#poll(),
      pauseMs: () => Math.min(this.#nextDueMs(), deps.slowPollMs()),
      minPauseMs: MIN_PAUSE_MS,
    });
    // Ticks do not count while a poll is running: its answer describes the moment of the read.
    deps.healthyTimer.onTick((tickMs) => !this.#isReading && this.#ownerless.countHealthyTick(tickMs));
  }

  get ownerlessRows(): number {
    return this.#ownerless.size;
  }

  /** Rows that stay `running` after the grace, because agents were told to return later. */
  get rowsAwaitingReturns(): number {
    return this.#rowsAwaitingReturns;
  }

  start(): void {
    this.#loop.start();
  }

  /**
   * Polls now instead of at the next turn: a run has ended, or another instance reports that a row
   * changed.
   */
  trigger(): void {
    this.#loop.trigger();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  #nextDueMs(): number {
    if (this.#ownerless.size === 0) return Number.POSITIVE_INFINITY;
    const areAllWaiting = this.#ownerless.size === this.#rowsAwaitingReturns;
    return areAllWaiting ? Math.max(this.#waitMs, OWNERLESS_POLL_MS) : OWNERLESS_POLL_MS;
  }

  async #poll(): Promise<void> {
    this.#waitMs = 0;
    const { database, sessions, writer } = this.#deps;
    const { run } = writer();
    const sentAt = sessions.registrations;
    const rows = await this.#read(database, run);
    if (run !== writer().run) return;
    const mine = new Map(rows.filter((row) => row.run === run).map((row) => [row.serverUuid, row]));
    this.#closeDisowned(run, sentAt, mine);
    const ownerless = rows.filter((row) => this.#isOwnerless(row, run));
    const { own = [], others = [] } = Object.groupBy(this.#ownerless.read(ownerless), (row) =>
      row.run === run ? 'own' : 'others',
    );
    await this.#markUnknown(own, run);
    await this.#markUnknown(await this.#withoutWaiting(others, run), run);
  }

  /**
   * An agent of a dead instance may be late because an instance told it when to return. It tries
   * again up to reconnectMaxMs after that time, and then has the usual grace. Nobody knows which
   * agents were told, so all rows of dead runs wait until the latest of these times. If that cannot
   * be read, they wait for the next round. The database measures the limit of this wait, so failed
   * reads do not extend it: an instance that refuses agents for ever must not keep lost servers
   * `running` for ever.
   */
  async #withoutWaiting(due: readonly HeldRow[], run: string): Promise<readonly HeldRow[]> {
    const { database, ownerlessGraceMs, reconnectMaxMs } = this.#deps;
    const runs = [...new Set(due.map((row) => row.run))];
    const awaited =
      runs.length > 0 ? await readAwaitedReturns(database, run, runs, reconnectMaxMs + ownerlessGraceMs) : undefined;
    const { waiting = [], others = [] } = Object.groupBy(due, (row) =>
      awaited?.runs.has(row.run) ? 'waiting' : 'others',
    );
    this.#noteWaiting(waiting.length, awaited);
    return others;
  }

  /** Logs once when rows begin to wait. */
  #noteWaiting(servers: number, awaited: AwaitedReturns | undefined): void {
    const isFirst = this.#rowsAwaitingReturns === 0 && servers > 0;
    this.#rowsAwaitingReturns = servers;
    this.#waitMs = awaited?.firstOverInMs ?? 0;
    if (isFirst)
      this.#deps.log.info(
        { servers, latest_return_at: awaited?.latestReturnAt },
        'roster: servers of dead instances stay running longer, because agents were told to return later',
      );
  }

  async #read(database: Queryable, run: string): Promise<PolledRow[]> {
    this.#isReading = true;
    try {
      return await pollRows(database, run);
    } catch (error) {
      this.#ownerless.readFailed();
      throw error;
    } finally {
      this.#isReading = false;
    }
  }

  /**
   * Closes each live session whose row is not (this run, its epoch) or is `unknown`; its agent
   * connects again.
   */
  #closeDisowned(run: string, sentAt: number, mine: Map<string, PolledRow>): void {
    for (const session of [...this.#deps.sessions.all()]) {
      if (session.run !== run || session.registration > sentAt) continue;
      const row = mine.get(session.serverUuid);
      if (row?.epoch === session.epoch && row.isRunning) continue;
      this.#deps.sessionLosses.supersede(session, 'its row in the roster is no longer its own');
    }
  }

  /**
   * Compares with the sessions of this moment: one that registered after the poll was sent owns its
   * row as well.
   */
  #isOwnerless(row: PolledRow, run: string): boolean {
    if (!row.isRunning) return false;
    if (row.run !== run) return this.#deps.mayMarkOthersUnknown();
    const { sessions } = this.#deps;
    return !sessions.isPending(row.serverUuid) && sessions.get(row.serverUuid)?.epoch !== row.epoch;
  }

  /**
   * `run`: this instance's run when the rows were found due. A later one has no evidence of its
   * own.
   */
  async #markUnknown(due: readonly HeldRow[], run: string): Promise<void> {
    for (const some of chunksOf(due, MAX_BATCH)) {
      const batch = some.filter((row) => this.#isStillOwnerless(row));
      const writer = this.#deps.writer();
      if (writer.run !== run) return;
      const marked = new Set(await markOwnerlessUnknown(this.#deps.database, writer, batch));
      const lost = batch.filter(({ serverUuid }) => marked.has(serverUuid));
      const transitions = lost.map((row) => ({
        server_uuid: row.serverUuid,
        reason: reasonOfOwnerless(row, writer),
      }));
      this.#transitions.write(transitions, 'server: running -> unknown');
    }
  }

  #isStillOwnerless({ serverUuid, epoch }: HeldRow): boolean {
    const session: Session | undefined = this.#deps.sessions.get(serverUuid);
    return session?.epoch !== epoch && !this.#deps.sessions.isPending(serverUuid);
  }
}

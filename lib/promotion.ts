/**
 * Notices that another server of the database was promoted, and has what this instance's agents work on compared with it anew.
 * A standby that was behind has forgotten ends that were recorded and acknowledged: nobody would report them again, and such a
 * task would stand open until its timeout. So agents with open tasks are asked to come again, softly: a new session begins with
 * an inventory, and what that lacks is decided there (lib/tasks/reconciler.ts). After a synchronous standby nothing is lacking.
 *
 *     reading the timeline each period ──another one──▶ agents with open tasks are asked, some each second, until they came
 */
import { DatabaseUnavailableError, messageOf } from './errors.ts';
import type { Logger } from './log.ts';
import { IN_RECOVERY, NOT_TOLD, TIMELINE } from './moray/client.ts';
import { type Queryable, sqlStateOf } from './moray/database.ts';
import type { Clock } from './ports/clock.ts';
import type { Session, SessionTable } from './roster/session.ts';
import { readServersAtWork } from './tasks/claim-store.ts';
import type { Address } from './wire/frames.ts';

export interface PromotionWatchDeps {
  database: Queryable;
  sessions: SessionTable;
  /** Where agents may go; this instance among them. */
  addresses: () => Address[];
  periodMs: number;
  /** Longest pause before an agent that found no place is asked again. */
  askAgainMs: number;
  clock: Clock;
  log: Logger;
}

const PACE_MS = 1_000;
const ASKED_AT_ONCE = 200;

export class PromotionWatch {
  readonly #deps: PromotionWatchDeps;
  readonly #stopping = new AbortController();
  /** To be compared; when each may be asked, and how long a pause follows. */
  readonly #open = new Map<Session, { dueAt: number; pauseMs: number }>();
  #timeline: number | undefined;
  #running: Promise<void> | undefined;

  constructor(deps: PromotionWatchDeps) {
    this.#deps = deps;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { clock, log, periodMs } = this.#deps;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      try {
        await this.#look();
      } catch (error) {
        if (NOT_TOLD.includes(sqlStateOf(error) ?? '')) {
          log.warn({ reason: messageOf(error) }, 'database: it does not tell its timeline; promotions pass unnoticed');
          return;
        }
        if (!(error instanceof DatabaseUnavailableError))
          log.error({ err: error }, 'database: promotions cannot be watched');
      }
      this.#ask();
      await clock.sleep(this.#open.size > 0 ? PACE_MS : periodMs, signal);
    }
  }

  async #look(): Promise<void> {
    const { clock, database, log, sessions } = this.#deps;
    const timeline = await readTimeline(database);
    if (timeline === undefined || timeline === this.#timeline) return;
    if (this.#timeline !== undefined) {
      const mine = [...sessions.all()].map(({ serverUuid }) => serverUuid);
      for (const serverUuid of await readServersAtWork(database, mine)) {
        const session = sessions.get(serverUuid);
        if (session !== undefined) this.#open.set(session, { dueAt: clock.now(), pauseMs: PACE_MS });
      }
      const timelines = { from: this.#timeline, to: timeline };
      log.warn(
        { ...timelines, agents: this.#open.size },
        'database: a standby was promoted; open tasks are compared anew',
      );
    }
    this.#timeline = timeline;
  }

  #ask(): void {
    const { addresses, askAgainMs, clock } = this.#deps;
    const now = clock.now();
    let asked = 0;
    for (const [session, { dueAt, pauseMs }] of this.#open) {
      if (session.isEnded) this.#open.delete(session);
      else if (session.isInventoried && dueAt <= now && asked < ASKED_AT_ONCE) {
        asked += 1;
        this.#open.set(session, { dueAt: now + pauseMs, pauseMs: Math.min(2 * pauseMs, askAgainMs) });
        session.socket.askToLeave('the database is another server now; come again with an inventory', addresses());
      }
    }
  }
}

/** Undefined on a server in recovery. */
async function readTimeline(database: Queryable): Promise<number | undefined> {
  try {
    const { rows } = await database.query<{ timeline: string }>(TIMELINE);
    return Number.parseInt(rows[0]?.timeline ?? '', 16);
  } catch (error) {
    if (sqlStateOf(error) === IN_RECOVERY) return undefined;
    throw error;
  }
}

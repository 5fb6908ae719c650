/**
 * Notices that another server of the database was promoted, and has what this instance's agents work on compared with it anew.
 * A standby that was behind has forgotten ends that were recorded and acknowledged: nobody would report them again, and such a
 * task would stand open until its timeout. So agents with open tasks are asked to come again, softly: a new session begins with
 * an inventory, and what that lacks is decided there (lib/tasks/reconciler.ts). After a synchronous standby nothing is lacking.
 * One that has nowhere else to go stays. Asked in vain so often that those that could go have gone, it is told of this instance
 * alone, and its session is closed without a verdict: it comes back at once.
 *
 *     reading the timeline each period ──another one──▶ agents with open tasks are asked, some each second, until they came
 *                                                            └──three times in vain, while this one takes agents──▶ closed
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
  cnapiUuid: string;
  /** Where agents may go; this instance among them. */
  addresses: () => Address[];
  /** Whether an agent that comes here now is taken in. */
  takesAgents: () => boolean;
  /** Ends a session without a verdict on its server. */
  dismiss: (session: Session, why: string) => void;
  periodMs: number;
  /** Longest pause before an agent that found no place is asked again. */
  askAgainMs: number;
  clock: Clock;
  log: Logger;
}

const PACE_MS = 1_000;
/** Or closed. */
const ASKED_AT_ONCE = 200;
const ASKED_IN_VAIN = 3;
const REASON = 'the database is another server now; come again with an inventory';

interface Asking {
  dueAt: number;
  /** Until it may be asked again. */
  pauseMs: number;
  asked: number;
}

export class PromotionWatch {
  readonly #deps: PromotionWatchDeps;
  readonly #stopping = new AbortController();
  /** To be compared. */
  readonly #open = new Map<Session, Asking>();
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
        if (session !== undefined) this.#open.set(session, { dueAt: clock.now(), pauseMs: PACE_MS, asked: 0 });
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
    const { askAgainMs, clock } = this.#deps;
    const now = clock.now();
    let asked = 0;
    for (const [session, asking] of this.#open) {
      if (session.isEnded) this.#open.delete(session);
      else if (session.isInventoried && asking.dueAt <= now && asked < ASKED_AT_ONCE) {
        asked += 1;
        this.#askOne(session, asking.asked);
        const pauseMs = Math.min(2 * asking.pauseMs, askAgainMs);
        this.#open.set(session, { dueAt: now + asking.pauseMs, pauseMs, asked: asking.asked + 1 });
      }
    }
  }

  #askOne(session: Session, before: number): void {
    const { addresses, cnapiUuid, dismiss, takesAgents } = this.#deps;
    const mayClose = before >= ASKED_IN_VAIN && takesAgents();
    // It would try the others first, and one that is down but listed might cost it more than the grace it has.
    const places = mayClose ? addresses().filter(({ uuid }) => uuid === cnapiUuid) : addresses();
    session.socket.askToLeave(REASON, places);
    if (mayClose) dismiss(session, REASON);
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

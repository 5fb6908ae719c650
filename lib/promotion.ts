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
import { type Queryable, sqlStateOf } from './moray/database.ts';
import type { Clock } from './ports/clock.ts';
import type { Session, SessionTable } from './roster/session.ts';
import { readServersAtWork } from './tasks/claim-store.ts';
import type { Address } from './wire/frames.ts';

export interface PromotionWatchDeps {
  database: Queryable;
  sessions: SessionTable;
  run: () => string;
  /** Where agents may go; this instance among them. */
  addresses: () => Address[];
  periodMs: number;
  clock: Clock;
  log: Logger;
}

const PACE_MS = 1_000;
const ASKED_AT_ONCE = 200;

export class PromotionWatch {
  readonly #deps: PromotionWatchDeps;
  readonly #stopping = new AbortController();
  /** To be compared; those asked last at the end. */
  readonly #open = new Set<Session>();
  #timeline: string | undefined;
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
        if (!(error instanceof DatabaseUnavailableError)) {
          log.warn({ reason: messageOf(error) }, 'database: it does not tell its timeline; promotions pass unnoticed');
          return;
        }
      }
      this.#ask();
      await clock.sleep(this.#open.size > 0 ? PACE_MS : periodMs, signal);
    }
  }

  async #look(): Promise<void> {
    const { database, log, run, sessions } = this.#deps;
    const timeline = await readTimeline(database);
    if (timeline === undefined) return;
    if (this.#timeline !== undefined && timeline !== this.#timeline) {
      for (const serverUuid of await readServersAtWork(database, run())) {
        const session = sessions.get(serverUuid);
        if (session !== undefined) this.#open.add(session);
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
    for (const session of this.#open) if (session.isEnded) this.#open.delete(session);
    const due = [...this.#open].filter(({ isInventoried }) => isInventoried).slice(0, ASKED_AT_ONCE);
    for (const session of due) {
      this.#open.delete(session);
      this.#open.add(session);
      session.socket.askToLeave(
        'the database is another server now; come again with an inventory',
        this.#deps.addresses(),
      );
    }
  }
}

/** Each promotion begins a new one. Undefined on a server in recovery. */
async function readTimeline(database: Queryable): Promise<string | undefined> {
  try {
    const { rows } = await database.query<{ timeline: string }>(
      `select substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) as timeline`,
    );
    return rows[0]?.timeline;
  } catch (error) {
    if (sqlStateOf(error) === '55000') return undefined;
    throw error;
  }
}

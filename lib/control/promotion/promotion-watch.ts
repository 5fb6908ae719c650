/**
 * Detects that another server of the database was promoted, and then compares open tasks with their
 * agents again. A standby that was behind lacks ends that had been recorded and acknowledged.
 * Nobody would report those again, so such a task would stay open until its timeout. Agents with
 * open tasks are therefore asked to reconnect, softly: a new session begins with an inventory, and
 * lib/control/tasks/dispatch/reconciler.ts decides about what that lacks. After a synchronous
 * standby nothing is lacking.
 *
 * An agent that finds no other instance stays. After several unsuccessful requests it gets this
 * instance's address only, and its session is closed without a status change, so it returns at
 * once.
 *
 *     reading the timeline ──it changed──▶ asking agents with open tasks to reconnect
 *                                           └──3 requests failed, this instance admits agents──▶ closed
 */

import { messageOf } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import { IN_RECOVERY, TIMELINE_NOT_READABLE, TIMELINE_QUERY } from '../../platform/postgres/client.ts';
import { type Queryable, sqlStateOf } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { Loop } from '../../platform/time/loop.ts';
import type { InstanceAddress } from '../../protocol/link/frames.ts';
import { doublingPause, Relocation } from '../roster/relocation/relocation.ts';
import type { Session, SessionTable } from '../roster/sessions/session.ts';
import { readServersAtWork } from '../tasks/dispatch/claim-store.ts';

interface PromotionWatchDeps {
  database: Queryable;
  sessions: SessionTable;
  cnapiUuid: string;
  /** Where agents may go, including this instance. */
  addresses: () => InstanceAddress[];
  /** Whether an agent that arrives now is accepted here. */
  takesAgents: () => boolean;
  /** Ends a session without a status change. */
  closeWithoutStatusChange: (session: Session, reason: string) => void;
  periodMs: number;
  /** Longest pause before an agent that found no other instance is asked again. */
  askAgainMs: number;
  clock: Clock;
  log: Logger;
}

const PACE_MS = 1_000;
/** Most agents asked or closed in one second. */
const ASKED_AT_ONCE = 200;
const MAX_SOFT_REQUESTS = 3;
const REASON = 'the database failed over; reconnect and send an inventory';

export class PromotionWatch {
  readonly #deps: PromotionWatchDeps;
  readonly #loop: Loop;
  /** Sessions that still must be compared. */
  readonly #open = new Set<Session>();
  #relocation: Relocation;
  #timeline: number | undefined;

  constructor(deps: PromotionWatchDeps) {
    this.#deps = deps;
    this.#relocation = this.#newRelocation();
    this.#loop = new Loop({
      ...deps,
      what: 'database: read of its timeline',
      work: () => this.#round(),
      pauseMs: () => (this.#open.size > 0 ? PACE_MS : deps.periodMs),
    });
  }

  start(): void {
    this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  async #round(): Promise<void> {
    try {
      await this.#poll();
    } catch (error) {
      if (!TIMELINE_NOT_READABLE.includes(sqlStateOf(error) ?? '')) throw error;
      const fields = { reason: messageOf(error) };
      this.#deps.log.warn(fields, 'database: timeline cannot be read; promotions are not noticed');
      void this.#loop.stop();
    } finally {
      this.#ask();
    }
  }

  async #poll(): Promise<void> {
    const { database, log, sessions } = this.#deps;
    const timeline = await readTimeline(database);
    if (timeline === undefined || timeline === this.#timeline) return;
    if (this.#timeline !== undefined) {
      const mine = [...sessions.all()].map(({ serverUuid }) => serverUuid);
      for (const serverUuid of await readServersAtWork(database, mine)) {
        const session = sessions.get(serverUuid);
        if (session !== undefined) this.#open.add(session);
      }
      this.#relocation = this.#newRelocation();
      const timelines = { from: this.#timeline, to: timeline };
      log.warn(
        { ...timelines, agents: this.#open.size },
        'database: a standby was promoted; open tasks are compared again',
      );
    }
    this.#timeline = timeline;
  }

  #newRelocation(): Relocation {
    const { askAgainMs, clock } = this.#deps;
    return new Relocation({ clock, pauseMs: doublingPause(PACE_MS, askAgainMs) });
  }

  #ask(): void {
    const { addresses, cnapiUuid, closeWithoutStatusChange, takesAgents } = this.#deps;
    for (const session of this.#open) if (session.isEnded) this.#open.delete(session);
    const isStuck = (session: Session) => this.#relocation.timesAsked(session) >= MAX_SOFT_REQUESTS && takesAgents();
    const stuck = [...this.#open].filter(isStuck);
    const others = [...this.#open].filter((session) => !isStuck(session));
    const request = { atMost: ASKED_AT_ONCE, reason: REASON };
    const asked = this.#relocation.ask({ ...request, among: others, addresses: addresses() });
    // Given all addresses, the agent would try the others first. One that is down but still listed
    // might take longer than the grace for its server.
    const here = addresses().filter(({ uuid }) => uuid === cnapiUuid);
    const atMost = ASKED_AT_ONCE - asked.length;
    for (const session of this.#relocation.ask({ ...request, atMost, among: stuck, addresses: here }))
      closeWithoutStatusChange(session, REASON);
  }
}

/** Undefined on a server in recovery. */
async function readTimeline(database: Queryable): Promise<number | undefined> {
  try {
    const { rows } = await database.query<{ timeline: string }>(TIMELINE_QUERY);
    return Number.parseInt(rows[0]?.timeline ?? '', 16);
  } catch (error) {
    if (sqlStateOf(error) === IN_RECOVERY) return undefined;
    throw error;
  }
}

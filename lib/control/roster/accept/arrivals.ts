/**
 * Admits agents as fast as this instance can take them, and tells the others when to return.
 * Measures the load at each tick and asks admission.ts. Made by the roster. The agent link
 * asks it before it does any work for an agent, and reports when an admitted agent works or has
 * left.
 */

import type { Logger } from '../../../platform/log.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import type { EventLoop } from '../../../platform/time/event-loop.ts';
import type { HealthyTimer } from '../../../platform/time/healthy-timer.ts';
import type { Admission } from '../../../protocol/api/instances.ts';
import {
  type AdmissionState,
  type Arrival,
  admissionOf,
  admit,
  beginAdmission,
  defer,
  latestReturnOf,
  mayAdmit,
  measure,
  pacedReason,
} from './admission.ts';

interface ArrivalsDeps {
  healthyTimer: HealthyTimer;
  eventLoop: EventLoop;
  /** The number of sessions, and of those whose heartbeats are overdue. */
  sessions: () => number;
  quiet: () => number;
  /** How long the oldest unanswered statement that admits an agent has been running. */
  statementMs: () => number;
  /** How far away the database is. */
  roundTripMs: () => number;
  /** False while the instance accepts no agent for a reason other than its load. */
  takesAgents: () => boolean;
  maxAgents: number;
  clock: Clock;
  log: Logger;
}

export class Arrivals {
  readonly #deps: ArrivalsDeps;
  #state: AdmissionState;
  #concurrentAdmissions = 0;
  /** Connections; each counts once, however many answers it queues. */
  readonly #backedUp = new Set<object>();
  #announced: Admission = 'open';
  /** Counted over the life of the process. */
  admitted = 0;
  deferred = 0;

  constructor(deps: ArrivalsDeps) {
    this.#deps = deps;
    this.#state = beginAdmission(deps.clock.now());
    deps.healthyTimer.onFire((lateMs) => this.#measure(lateMs));
  }

  /** Agents per second that may be admitted at present. */
  get rate(): number {
    return this.#state.load === 'late' ? 0 : this.#state.rate;
  }

  /** Agents that were admitted and whose inventory has not arrived yet. */
  get concurrentAdmissions(): number {
    return this.#concurrentAdmissions;
  }

  get admission(): Admission {
    return admissionOf(this.#state, this.#hasRoom, this.#deps.clock.now());
  }

  /**
   * Milliseconds until the last agent that was told to return may do so; negative if that time is
   * over, undefined if no agent was told.
   */
  get latestReturnInMs(): number | undefined {
    const inMs = latestReturnOf(this.#state) - this.#deps.clock.now();
    return Number.isFinite(inMs) ? inMs : undefined;
  }

  /** Why no agent can be admitted now, if so. Changes nothing. */
  get refusalReason(): string | undefined {
    if (!this.#isBelowMaximum) return 'the instance is full';
    if (mayAdmit(this.#state, this.#concurrentAdmissions, this.#deps.clock.now())) return undefined;
    return this.#state.reason === ''
      ? pacedReason(this.#deps.roundTripMs())
      : `the instance is at capacity: ${this.#state.reason}`;
  }

  /**
   * Admits one agent; it counts as a concurrent admission until the returned function is called.
   */
  admit(): () => void {
    this.#state = admit(this.#state, this.#deps.clock.now());
    this.#concurrentAdmissions += 1;
    this.admitted += 1;
    let isCounted = true;
    return () => {
      if (isCounted) this.#concurrentAdmissions -= 1;
      isCounted = false;
    };
  }

  /** Rejects one agent; returns when it should come back, in milliseconds. */
  defer(arrival: Arrival): number {
    const hasRoom = this.#hasRoom;
    const { state, retryAfterMs } = defer(this.#state, { arrival, hasRoom }, this.#deps.clock.now());
    this.#state = state;
    this.deferred += 1;
    return retryAfterMs;
  }

  /** A frame for this connection is queued behind frames that its agent has not taken yet. */
  noteBackedUp(connection: object): void {
    this.#backedUp.add(connection);
  }

  get #isBelowMaximum(): boolean {
    return this.#deps.sessions() + this.#concurrentAdmissions < this.#deps.maxAgents;
  }

  get #hasRoom(): boolean {
    return this.#isBelowMaximum && this.#deps.takesAgents();
  }

  #measure(loopLateMs: number): void {
    const { clock, eventLoop, quiet, roundTripMs, sessions, statementMs } = this.#deps;
    const before = this.#state;
    const pressure = {
      loopLateMs,
      busyShare: eventLoop.busyShare(),
      statementMs: statementMs(),
      roundTripMs: roundTripMs(),
      sessions: sessions(),
      quiet: quiet(),
      backedUp: this.#backedUp.size,
      concurrentAdmissions: this.#concurrentAdmissions,
    };
    this.#backedUp.clear();
    this.#state = measure(before, pressure, clock.now());
    this.#note();
  }

  /** Logs each change of the admission once. */
  #note(): void {
    const { admission } = this;
    if (admission === this.#announced) return;
    const fields = { from: this.#announced, to: admission, rate: Math.round(this.rate), deferred: this.deferred };
    this.#announced = admission;
    this.#deps.log.info({ ...fields, reason: this.refusalReason }, 'arrivals: admission changed');
  }
}

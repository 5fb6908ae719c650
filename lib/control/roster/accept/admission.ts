/**
 * How many agents an instance admits, as data. Pure; arrivals.ts runs it. docs/design/roster.md,
 * "Arrivals".
 *
 * An instance that has room and is on time admits agents at `rate`. While it is busy, the rate is
 * cut each second, beginning at the number that it really admits; while it is on time, the rate
 * grows again, unless there are many concurrent admissions already. While it is late, it admits one
 * agent at a time, and after ten seconds none. Every other agent receives a time to return. These
 * times are spread, so that agents return about as fast as the instance can admit them.
 *
 *     on time ──delay, busy share or statement above a first bound──▶ busy ──above a second──▶ late
 *        ▲───────────────────────────one measurement below the bounds───────────────────────────┘
 */
import type { Admission } from '../../../protocol/api/instances.ts';
import { MAX_RETURN_MS } from '../../../protocol/limits.ts';

/** What an instance measures about itself in one period. */
export interface Pressure {
  /**
   * How late the period's timer was; smoothed by `measure`, so that one short stall does not stop
   * admission.
   */
  loopLateMs: number;
  /** The share of the time in which the event loop had a processor, 0 to 1. */
  busyShare: number;
  /** How long the oldest unanswered statement that admits an agent has been running. */
  statementMs: number;
  /** How long a statement takes that waits for nothing but the distance to the database. */
  roundTripMs: number;
  sessions: number;
  /** Sessions whose heartbeats are overdue. */
  quiet: number;
  /**
   * Answers in this period that were queued because the agent's connection did not take earlier
   * ones.
   */
  backedUp: number;
  /** Agents that were admitted and whose inventory has not arrived yet. */
  concurrentAdmissions: number;
}

/** Whether this instance knows who arrives: before that is checked, it may be anybody. */
export type Arrival = 'known' | 'unknown';

type LoadLevel = 'on-time' | 'busy' | 'late';

/** `reason` is for people to read. */
interface Measured {
  load: LoadLevel;
  reason: string;
}

export interface AdmissionState extends Measured {
  /** Agents per second. */
  rate: number;
  /** Agents that may be admitted now. */
  tokens: number;
  /** All times are of one monotonic clock, in milliseconds. */
  refilledAt: number;
  measuredAt: number;
  loopLateMs: number;
  /** When the present lateness began; ignored while the instance is on time. */
  lateSince: number;
  cutAt: number;
  /** Agents admitted since the last measurement, and per second, smoothed. */
  admitted: number;
  admittedRate: number;
  /**
   * The latest return time that was given. Agents that this instance knows have times of their own,
   * because anybody can ask for one.
   */
  bookedUntil: Readonly<Record<Arrival, number>>;
  /** When an agent was last deferred. */
  deferredAt: number;
}

export const FIRST_RATE = 1_000;
export const MAX_RATE = 4_000;
/** An instance that is busy but not late stays reachable. */
export const MIN_RATE = 10;
const CUT = 0.5;
const CUT_EVERY_MS = 1_000;
const GROWTH = 1.1;
/** The burst that may be admitted together, as a time at the present rate. */
const BURST_MS = 250;
const MIN_BURST = 20;
/**
 * How long a late instance still admits one agent at a time: a short stall must not reject a single
 * arriving agent.
 */
const TRICKLE_MS = 10_000;
/** The most agents that may be admitted and not have a working session yet. */
export const MAX_CONCURRENT_ADMISSIONS = 200;

/**
 * At this number of admissions the instance works at full speed, so the rate follows what it
 * admits.
 */
const MANY_CONCURRENT_ADMISSIONS = MAX_CONCURRENT_ADMISSIONS / 2;
/** The rate may exceed what is admitted by this factor. Otherwise it could not grow. */
const HEADROOM = 1.25;

const SMOOTHING = 0.5;
const BUSY_SHARE = 0.9;
const BUSY_LOOP_MS = 100;
const LATE_LOOP_MS = 500;
const STALE_MS = 1_500;
const BUSY_STATEMENT_MS = 500;
/**
 * A statement may wait for another one and then take as long itself; only what takes longer shows
 * that the database, and not its distance, is slow.
 */
const BUSY_ROUND_TRIPS = 3;
/** An agent waits for two statements, for five seconds in all (`WELCOME_WITHIN_MS`). */
const LATE_STATEMENT_MS = 2_000;
/**
 * The lowest round trip at which the distance to the database is reported as the limit of
 * admission.
 */
const FAR_MS = 100;
/** If the share of late sessions is smaller, those agents are the cause and not this instance. */
const LATE_SHARE = 0.05;
const LATE_SESSIONS = 10;

/** How many agents get each return slot; many connect elsewhere first. */
const OVERBOOKING = 2;
/** How many agents per second an instance that admits none can refuse without harm. */
const REFUSALS_PER_SECOND = 100;
const MIN_RETRY_MS = 1_000;
const TOLD_FOR_MS = 10_000;

export function beginAdmission(now: number): AdmissionState {
  return {
    load: 'on-time',
    reason: '',
    rate: FIRST_RATE,
    tokens: MIN_BURST,
    refilledAt: now,
    measuredAt: now,
    loopLateMs: 0,
    lateSince: now,
    cutAt: Number.NEGATIVE_INFINITY,
    admitted: 0,
    admittedRate: 0,
    bookedUntil: { known: Number.NEGATIVE_INFINITY, unknown: Number.NEGATIVE_INFINITY },
    deferredAt: Number.NEGATIVE_INFINITY,
  };
}

/** Derives the load from one measurement. */
export function measureLoad(pressure: Pressure): Measured {
  const { busyShare, loopLateMs, quiet, backedUp, roundTripMs, sessions, statementMs } = pressure;
  const isMany = (some: number) => some > Math.max(LATE_SESSIONS, sessions * LATE_SHARE);
  if (loopLateMs >= LATE_LOOP_MS) return { load: 'late', reason: 'its event loop is late' };
  if (statementMs >= LATE_STATEMENT_MS) return { load: 'late', reason: 'its database is slow' };
  if (isMany(quiet)) return { load: 'late', reason: 'heartbeats of many agents arrive late' };
  if (isMany(backedUp)) return { load: 'late', reason: 'many connections do not read what is sent' };
  if (loopLateMs >= BUSY_LOOP_MS || busyShare >= BUSY_SHARE) return { load: 'busy', reason: 'its event loop is busy' };
  if (statementMs >= Math.max(BUSY_STATEMENT_MS, BUSY_ROUND_TRIPS * roundTripMs))
    return { load: 'busy', reason: 'its database is slow' };
  return { load: 'on-time', reason: '' };
}

/** Why not all agents are admitted together although the instance is on time. */
export function pacedReason(roundTripMs: number): string {
  const many = 'too many agents are connecting';
  return roundTripMs < FAR_MS ? many : `${many}; its database is ${Math.round(roundTripMs)} ms away`;
}

export function measure(before: AdmissionState, pressure: Pressure, now: number): AdmissionState {
  const loopLateMs = smoothed(before.loopLateMs, pressure.loopLateMs);
  const periodMs = Math.max(1, now - before.measuredAt);
  const admittedNow = (1_000 * before.admitted) / periodMs;
  const admittedRate = smoothed(before.admittedRate, admittedNow);
  const measured = measureLoad({ ...pressure, loopLateMs });
  const lateSince = before.load === 'late' ? before.lateSince : now;
  const filled = refill(before, now);
  const tokens = measured.load === 'late' ? 0 : filled.tokens;
  const state: AdmissionState = {
    ...filled,
    ...measured,
    tokens,
    measuredAt: now,
    loopLateMs,
    lateSince,
    admitted: 0,
    admittedRate,
  };
  const maxRate = Math.max(admittedNow, admittedRate);
  const possible = maxRate < MIN_RATE ? state.rate : Math.min(state.rate, HEADROOM * maxRate);
  if (measured.load === 'on-time') {
    const rate =
      pressure.concurrentAdmissions > MANY_CONCURRENT_ADMISSIONS ? possible : Math.min(MAX_RATE, state.rate * GROWTH);
    return { ...state, rate };
  }
  if (now - state.cutAt < CUT_EVERY_MS) return state;
  return { ...state, rate: Math.max(MIN_RATE, CUT * possible), cutAt: now };
}

const smoothed = (before: number, now: number): number => SMOOTHING * before + (1 - SMOOTHING) * now;

/**
 * Whether an agent that arrives now is admitted. `concurrentAdmissions`: agents that were admitted
 * and do not work yet.
 */
export function mayAdmit(state: AdmissionState, concurrentAdmissions: number, now: number): boolean {
  if (state.load === 'late') return concurrentAdmissions === 0 && now - state.lateSince < TRICKLE_MS;
  // After a stall, arrivals may be read before the timer that would measure it.
  if (now - state.measuredAt >= STALE_MS) return concurrentAdmissions === 0;
  return concurrentAdmissions < MAX_CONCURRENT_ADMISSIONS && refill(state, now).tokens >= 1;
}

export function admit(before: AdmissionState, now: number): AdmissionState {
  const state = refill(before, now);
  return { ...state, tokens: Math.max(0, state.tokens - 1), admitted: state.admitted + 1 };
}

/** When an agent that is rejected now should return. `hasRoom` is false when no rate helps it. */
export function defer(
  state: AdmissionState,
  { arrival, hasRoom }: { arrival: Arrival; hasRoom: boolean },
  now: number,
): { state: AdmissionState; retryAfterMs: number } {
  const pace = hasRoom && state.load !== 'late' ? state.rate * OVERBOOKING : REFUSALS_PER_SECOND;
  const earliest = Math.max(now, state.bookedUntil[arrival]) + 1_000 / pace;
  const until = Math.min(earliest, now + MAX_RETURN_MS);
  const retryAfterMs = Math.max(MIN_RETRY_MS, Math.ceil(until - now));
  const bookedUntil = { ...state.bookedUntil, [arrival]: until };
  return { state: { ...state, bookedUntil, deferredAt: now }, retryAfterMs };
}

/** The latest time at which an agent was told to return; -Infinity if none was told. */
export function latestReturnOf({ bookedUntil, deferredAt }: AdmissionState): number {
  return Math.max(bookedUntil.known, bookedUntil.unknown, deferredAt + MIN_RETRY_MS);
}

/** `hasRoom`: whether it accepts agents, apart from its load. */
export function admissionOf(state: AdmissionState, hasRoom: boolean, now: number): Admission {
  if (!hasRoom || state.load === 'late') return 'closed';
  return now - state.deferredAt < TOLD_FOR_MS ? 'paced' : 'open';
}

function refill(state: AdmissionState, now: number): AdmissionState {
  const passedMs = now - state.refilledAt;
  if (state.load === 'late' || passedMs <= 0) return { ...state, refilledAt: Math.max(now, state.refilledAt) };
  const maxTokens = Math.max(MIN_BURST, (state.rate * BURST_MS) / 1_000);
  return { ...state, refilledAt: now, tokens: Math.min(maxTokens, state.tokens + (state.rate * passedMs) / 1_000) };
}

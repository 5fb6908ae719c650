/**
 * A world with a clock: two instances, an agent with each, and what each instance counts. One tick
 * is a unit of all limits. The real durations are counted separately, unknown to the instances, to
 * check their decisions.
 */

import type { PeerSilence } from '../../../lib/control/roster/sessions/silence.ts';
import type { HeldRow } from '../../../lib/control/roster/status/authority-row.ts';
import type { Row, Run } from '../roster/model.ts';

export const LIMITS = { silence: 3, probe: 2, lease: 4, grace: 3, startGrace: 5 } as const;

export interface SessionState extends PeerSilence {
  server: number;
  run: string;
  epoch: number;
}

export interface InstanceState {
  run: string;
  isUp: boolean;
  /** Ticks that it was stopped, just before this one. */
  stalled: number;
  failedBeats: number;
  healthyTicks: number;
  sessions: readonly SessionState[];
  /** What it last read of the other runs. */
  watched: readonly { run: string; beat: number; unchangedMs: number }[];
  ownerlessRows: readonly (HeldRow & { aloneMs: number })[];
  losses: readonly HeldRow[];
}

export interface AgentState {
  isDead: boolean;
  /** The instance that its session is at. */
  at: number | undefined;
}

/** Real durations in ticks. */
export interface Truth {
  /** Ticks since a byte of each server reached the instance of its session, or could have. */
  silent: readonly number[];
  /** Ticks since the row of each server lost its owner, while the database could be read. */
  ownerless: readonly number[];
  /** Ticks since the last beat of each run, while the database accepted beats. */
  unbeaten: Readonly<Record<string, number>>;
  /**
   * Ticks since the agent of each server died. A status change may be late by this number.
   */
  dead: readonly number[];
}

export interface Budget {
  stall: number;
  isolated: number;
  outage: number;
  crash: number;
  die: number;
}

export interface WatchingState {
  rows: readonly Row[];
  runs: readonly Run[];
  instances: readonly InstanceState[];
  agents: readonly AgentState[];
  truth: Truth;
  wrong: string | undefined;
  left: Budget;
}

const NO_FAULTS: Budget = { stall: 0, isolated: 0, outage: 0, crash: 0, die: 0 };

const row = (run: string): Row => ({
  run,
  epoch: 1,
  status: 'running',
  reason: 'connected',
  incarnation: null,
  conn: null,
  journalId: null,
  inventoryEpoch: 0,
  replaced: null,
});

export function firstState(faults: Partial<Budget>): WatchingState {
  const names = ['A1', 'B1'];
  return {
    rows: names.map(row),
    runs: names.map((run) => ({ run, cnapiUuid: run.charAt(0), isLive: true, isDraining: false, beat: 0 })),
    instances: names.map((run, server) => newInstance(run, [{ server, run, epoch: 1, quietMs: 0, isProbed: false }])),
    agents: names.map((_, at) => ({ isDead: false, at })),
    truth: { silent: [0, 0], ownerless: [0, 0], unbeaten: {}, dead: [0, 0] },
    wrong: undefined,
    left: { ...NO_FAULTS, ...faults },
  };
}

export function newInstance(run: string, sessions: readonly SessionState[]): InstanceState {
  return {
    run,
    isUp: true,
    stalled: 0,
    failedBeats: 0,
    healthyTicks: LIMITS.startGrace,
    sessions,
    watched: [],
    ownerlessRows: [],
    losses: [],
  };
}

/** Beats are compared with the previous reading, and with nothing else. */
export function keyOf({ runs, instances, truth, ...others }: WatchingState): string {
  const beats = runs.map(({ run, isLive, beat }) => [
    run,
    isLive,
    ...instances.map(({ watched }) => watched.find((one) => one.run === run)?.beat === beat),
  ]);
  const kept = instances.map(({ watched, ...instance }) => [
    instance,
    watched.map(({ run, unchangedMs }) => [run, unchangedMs]),
  ]);
  const unbeaten = runs.map(({ run, isLive }) => isLive && truth.unbeaten[run]);
  return JSON.stringify([others, beats, kept, truth.silent, truth.ownerless, truth.dead, unbeaten]);
}

export function tell({ rows, instances, agents, runs }: WatchingState): string {
  const ofRows = rows.map(({ run, epoch, status }, server) => `s${server} ${run} e${epoch} ${status}`);
  const ofInstances = instances.map(({ run, isUp, stalled, sessions, healthyTicks, watched }) => {
    const held = sessions.map(({ server, quietMs }) => `s${server} quiet ${quietMs}`).join(', ');
    const how = isUp ? (stalled > 0 ? `stalled for ${stalled}` : '') : 'down';
    return `${run} ${how} [${held}] healthy for ${healthyTicks}, sees ${watched.map((one) => `${one.run} for ${one.unchangedMs}`).join()}`;
  });
  const ofAgents = agents.map(({ isDead, at }, server) => `agent ${server} ${isDead ? 'dead' : (at ?? 'without')}`);
  return [
    ...ofRows,
    ...ofInstances,
    ...ofAgents,
    runs.map(({ run, isLive }) => `${run} ${isLive ? 'live' : 'dead'}`).join(),
  ].join(' | ');
}

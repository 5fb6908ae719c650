/**
 * Types and pure decisions of the roster: which instance acts for which server, under which epoch,
 * and how a hello is answered. RFD 61 "Server Status"; docs/design/roster.md. Used by the
 * authority, the reaper and the routes.
 */
import type { ServerStatus } from '../../../protocol/api/servers.ts';
import { MAX_EPOCH_LEAD } from '../../../protocol/limits.ts';
import type { HelloFrame, RefusalCode } from '../../../protocol/link/frames.ts';

/** The reason for a server's status; each has the sentence that an operator reads. */
export const STATUS_REASONS = {
  connected: 'its agent is connected',
  silent: 'its agent was silent for too long',
  closed: "its agent's connection ended",
  'no-inventory': 'its agent did not report which tasks it holds',
  'protocol-error': 'its agent sent a frame that could not be understood',
  'slow-reader': 'its agent did not read what was sent to it',
  'session-lost': 'its connection ended before the instance could use it',
  'instance-lost': 'the instance that held its agent is gone, and the agent did not connect to another one',
  'legacy-heartbeat': 'its agent, a legacy agent, posts heartbeats',
  'legacy-silent': 'its agent, a legacy agent, stopped posting heartbeats',
  'ur-sysinfo': 'it has no agent, and its Ur says its sysinfo',
  'ur-silent': 'its Ur stopped saying its sysinfo',
  removed: 'it was removed on request',
} as const;
export type StatusReason = keyof typeof STATUS_REASONS;

/** Why a session ended. The reason is written to its server's status. */
export type LossReason = Extract<StatusReason, 'silent' | 'closed' | 'no-inventory' | 'protocol-error' | 'slow-reader'>;

/** The row of one server in cnapi_roster_authority. */
export interface RosterRow {
  serverUuid: string;
  cnapiUuid: string | null;
  /** The run that has authority; null when no run has it. */
  run: string | null;
  epoch: number;
  status: ServerStatus;
  reason: StatusReason;
  /** Since when the status has this value, by the database's clock. */
  since: Date;
  incarnation: string | null;
  conn: number | null;
  journalId: string | null;
  inventoryEpoch: number;
  /**
   * How long the agent must wait before its next accept because it returned too often; 0: no wait.
   */
  returnsInMs: number;
}

/**
 * Limits how often a session may move a server from `unknown` to `running`: RETURN_BURST times at
 * once, then once per period. Each return adds two entries to the status history and to the events,
 * which every reader receives.
 */
export const RETURN_BURST = 20;
export const RETURN_EVERY_MS = 5_000;

/**
 * How a server's agent is connected. `linked`: over a session of the run on the row. `legacy`: a
 * legacy agent, which posts to any instance, so the row says `running` without a run (in SQL:
 * `status = 'running' and run is null`). `ur`: the same, for a server without an agent, whose Ur
 * speaks AMQP. `none`: not connected. Work for these two is fenced by the epoch, which rises when
 * the server returns from `unknown`, as it does at an accept.
 */
type AgentKind = 'linked' | 'legacy' | 'ur' | 'none';

export function kindOfAgent({ status, run, reason }: Pick<RosterRow, 'status' | 'run' | 'reason'>): AgentKind {
  if (status !== 'running') return 'none';
  if (run !== null) return 'linked';
  return reason === 'ur-sysinfo' ? 'ur' : 'legacy';
}

/** Identifies the row of one session. It guards every statement about that row. */
export interface HeldRow {
  serverUuid: string;
  run: string;
  epoch: number;
}

export type AuthorityRow = Pick<
  RosterRow,
  'run' | 'epoch' | 'status' | 'incarnation' | 'conn' | 'journalId' | 'inventoryEpoch' | 'returnsInMs'
>;
export type HelloIdentity = Pick<HelloFrame, 'incarnation' | 'conn' | 'journalId' | 'epoch'>;

export interface HelloRefusal {
  code: RefusalCode;
  message: string;
  conn?: number;
  retryAfterMs?: number;
}

type HelloDecision =
  /** Nothing on the row rejects the hello: try the accept again. */
  | { kind: 'again' }
  | { kind: 'refuse'; refusal: HelloRefusal }
  /**
   * Another incarnation of the uuid holds the row: probe it, then replace it or refuse the new one.
   */
  | { kind: 'probe'; incarnation: string; run: string; epoch: number };

/**
 * Decides about a hello that the accept statement rejected, from the row. `replaces`: the
 * incarnation that a probe has just found dead.
 */
export function decideHello(
  row: AuthorityRow | undefined,
  hello: HelloIdentity,
  replaces: string | null = null,
): HelloDecision {
  if (hello.epoch > (row?.epoch ?? 0) + MAX_EPOCH_LEAD)
    return refuse('epoch-out-of-range', 'the journal holds an epoch far above the roster; begin a new one');
  if (row === undefined) return { kind: 'again' };
  const isStale = hello.epoch < row.inventoryEpoch;
  if (isStale && row.journalId === hello.journalId)
    return refuse('stale-journal', 'the journal is older than one already seen of the same id; begin a new one');
  const before = decideIncarnation(row, hello, replaces);
  // An agent begins a new journal only if it would be accepted. While another machine holds its
  // row, it keeps its own journal.
  if (before.kind === 'again' && isStale && hello.epoch > 0)
    return refuse('stale-journal', 'a newer journal is already recorded for this server; begin a new one');
  if (before.kind === 'again' && row.status === 'unknown' && row.returnsInMs > 0)
    return { kind: 'refuse', refusal: returnsTooOften(row.returnsInMs) };
  return before;
}

function decideIncarnation(row: AuthorityRow, hello: HelloIdentity, replaces: string | null): HelloDecision {
  const { incarnation, run, status, epoch, conn } = row;
  if (incarnation === hello.incarnation) {
    if ((conn ?? 0) < hello.conn) return { kind: 'again' };
    return {
      kind: 'refuse',
      refusal: { code: 'superseded', message: 'a later connection was accepted', conn: conn ?? 0 },
    };
  }
  const isHeld = incarnation !== null && run !== null && status === 'running';
  return isHeld && incarnation !== replaces ? { kind: 'probe', incarnation, run, epoch } : { kind: 'again' };
}

/** The refusal that a second incarnation receives. */
export const incarnationAlive: HelloRefusal = {
  code: 'incarnation-alive',
  message: 'another agent with this server uuid is connected and answers; give one of the machines a uuid of its own',
  retryAfterMs: 5000,
};

function returnsTooOften(retryAfterMs: number): HelloRefusal {
  const message = `it reconnected too often: at most ${RETURN_BURST} times in a burst, then once every ${RETURN_EVERY_MS} ms`;
  return { code: 'returns-too-often', message, retryAfterMs };
}

function refuse(code: RefusalCode, message: string): HelloDecision {
  return { kind: 'refuse', refusal: { code, message } };
}

/**
 * The words of the roster and its pure decisions: which instance acts for which server, under which epoch, and what an
 * agent that wants in is told. RFD 61 "Server Status"; docs/design.md section 5. Used by the authority, the reaper and the routes.
 */
import type { HelloFrame, RefusalCode } from '../wire/frames.ts';
import { MAX_EPOCH_LEAD } from '../wire/limits.ts';

export type ServerStatus = 'running' | 'unknown';

/** Why a server's status is what it is; each with the sentence an operator reads. */
export const STATUS_REASONS = {
  connected: 'its agent is connected',
  silent: 'its agent was silent for too long',
  closed: "its agent's connection ended",
  'no-inventory': 'its agent did not say which tasks it holds',
  'protocol-error': 'its agent sent what could not be understood',
  'slow-reader': 'its agent did not take what was sent to it',
  'session-lost': 'its connection ended before the instance could use it',
  'instance-lost': 'the instance that held its agent is gone and the agent came to no other',
  'legacy-heartbeat': 'its agent, of the older kind, posts heartbeats',
  'legacy-silent': 'its agent, of the older kind, stopped posting heartbeats',
  removed: 'it was removed on request',
} as const;
export type StatusReason = keyof typeof STATUS_REASONS;

/** Why a session ended, as far as its server's status is concerned. */
export type LossReason = Extract<StatusReason, 'silent' | 'closed' | 'no-inventory' | 'protocol-error' | 'slow-reader'>;

/** The row of one server in cnapi_roster_authority. */
export interface RosterRow {
  serverUuid: string;
  cnapiUuid: string | null;
  /** The run that has authority; null when nobody has. */
  run: string | null;
  epoch: number;
  status: ServerStatus;
  reason: StatusReason;
  /** The database's clock: since when the status is this. */
  since: Date;
  incarnation: string | null;
  conn: number | null;
  journalId: string | null;
  inventoryEpoch: number;
}

/**
 * By which scheme a server's agent is there: `linked`, over a session of the run on the row; `old`, by its posts to any
 * instance, so that the row says `running` without a run (in SQL: `status = 'running' and run is null`); or `none`. Work
 * for an old agent is fenced by the epoch, which its return from `unknown` raises, as an accept does.
 */
export type AgentKind = 'linked' | 'old' | 'none';

export function kindOfAgent({ status, run }: Pick<RosterRow, 'status' | 'run'>): AgentKind {
  if (status !== 'running') return 'none';
  return run === null ? 'old' : 'linked';
}

/** What names one session's hold on a row, and guards every statement about it. */
export interface HeldRow {
  serverUuid: string;
  run: string;
  epoch: number;
}

export type Standing = Pick<
  RosterRow,
  'run' | 'epoch' | 'status' | 'incarnation' | 'conn' | 'journalId' | 'inventoryEpoch'
>;
export type Claim = Pick<HelloFrame, 'incarnation' | 'conn' | 'journalId' | 'epoch'>;

export interface Refusal {
  code: RefusalCode;
  message: string;
  conn?: number;
  retryAfterMs?: number;
}

export type HelloDecision =
  /** Nothing on the row stands against it: try the accept again. */
  | { kind: 'again' }
  | { kind: 'refuse'; refusal: Refusal }
  /** Another incarnation of the uuid holds the row: ask whether it is alive, then replace it or be refused. */
  | { kind: 'probe'; incarnation: string; run: string; epoch: number };

/**
 * What the row says of a hello that the accept statement did not let through. `replaces`: the incarnation that a probe has
 * just found dead.
 */
export function decideHello(
  standing: Standing | undefined,
  hello: Claim,
  replaces: string | null = null,
): HelloDecision {
  if (hello.epoch > (standing?.epoch ?? 0) + MAX_EPOCH_LEAD)
    return refuse('epoch-out-of-range', 'the journal holds an epoch far above the roster; begin a new one');
  if (standing === undefined) return { kind: 'again' };
  const isStale = hello.epoch < standing.inventoryEpoch;
  if (isStale && standing.journalId === hello.journalId)
    return refuse('stale-journal', 'the journal is older than one already seen of the same id; begin a new one');
  const before = decideIncarnation(standing, hello, replaces);
  // Only one that would be let in begins a new journal: while another machine stands in its place, its own stays as it is.
  if (before.kind === 'again' && isStale && hello.epoch > 0)
    return refuse('stale-journal', 'another journal came after it, and gave its inventory; begin a new one');
  return before;
}

function decideIncarnation(standing: Standing, hello: Claim, replaces: string | null): HelloDecision {
  const { incarnation, run, status, epoch, conn } = standing;
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

/** What a refused second incarnation is told. */
export const incarnationAlive: Refusal = {
  code: 'incarnation-alive',
  message: 'another agent with this server uuid is connected and answers; give one of the machines a uuid of its own',
  retryAfterMs: 5000,
};

function refuse(code: RefusalCode, message: string): HelloDecision {
  return { kind: 'refuse', refusal: { code, message } };
}

/**
 * A push job: what its coordinator does next, given the states of its nodes. Pure; driven by
 * `coordinator.ts`. The states are those of the specification (5.7.3), docs/design/push-jobs.md
 * draws them.
 *
 *     waiting ──its ticket is active──▶ voting
 *        └── ticket lost, time over, abort ──▶ aborting
 *     voting ──ready ≥ quorum──▶ running ──no node is left──▶ ended
 *        └── quorum out of reach, time over, abort ──▶ aborting ──started nodes have ended──▶ ended
 *                                  running ── abort, time over, too many failures ──▶ aborting
 *
 * Only a job with a ticket begins in `waiting`; one that loses its ticket later is aborted.
 */
import { RateLimit } from '../../platform/limiting/rate-limiter.ts';
import type { NodeStatus } from '../../protocol/api/push/job-schemas.ts';

export type PushJobState = 'waiting' | 'voting' | 'running' | 'aborting' | 'ended';
export type PushJobOutcome = 'complete' | 'quorum_failed' | 'timed_out' | 'aborted';

/** How many nodes have each status. */
export type NodeCounts = Readonly<Record<NodeStatus, number>>;

/** Ends that count as failures for `maxFailures`: the command ran, and not to success. */
const FAILURES: readonly NodeStatus[] = ['failed', 'crashed', 'timed_out'];

/**
 * The ticket that a job holds, or waits for. `lost`: it has expired, or somebody else has released
 * or deleted it.
 */
export type TicketHold = 'none' | 'queued' | 'active' | 'lost';

export interface CoordinatedJob {
  state: PushJobState;
  /** How the job ends, once it is aborting. */
  ending: PushJobOutcome | undefined;
  /** While it is aborting: started commands may end by themselves. */
  isSoft: boolean;
  /** How many nodes must be ready before one starts. */
  quorum: number;
  /** The abort that a caller has requested. */
  abortRequested: 'soft' | 'hard' | undefined;
  /** Maximum of nodes that are started and have not ended. */
  concurrency: number | undefined;
  /** Nodes that may start per second. */
  startRate: number | undefined;
  /** The job ends when more nodes than this have failed. */
  maxFailures: number | undefined;
  votingTimeoutMs: number;
  runTimeoutMs: number;
  abortTimeoutMs: number;
}

export interface PushJobSnapshot {
  job: CoordinatedJob;
  nodeCounts: NodeCounts;
  ticket: TicketHold;
  /** How long it waits for its ticket. */
  ticketTimeoutMs: number;
  /** Nodes whose task exists and has not ended, whether or not its start is known. */
  started: number;
  /** Nodes among them whose task was not cancelled. */
  toCancel: number;
  /** Nodes that a caller wants to be aborted, which has not been done yet. */
  toAbort: number;
  /** Nodes that have not started, of a job that is aborting. */
  toRelease: number;
  /** Started nodes whose commands have another limit than the job's run timeout gives them now. */
  outdatedTimeouts: number;
  /** Ms until the token bucket of the start rate is full again; negative: since it is. */
  startBucketFullInMs: number;
  /** `ageMs`: since the job asked its agents. `stateMs`: since it entered its present state. */
  ageMs: number;
  stateMs: number;
}

/**
 * Why a job is aborted, if a change of the job by a caller may take the cause away. The statement
 * asks again (cnapi_is_push_abort_due).
 */
export type AbortCause = 'no-quorum' | 'voting-timeout' | 'run-timeout' | 'failures';

export type CoordinatorAction =
  | { do: 'wait'; forMs: number | undefined }
  /** The job has its ticket: its agents are asked. */
  | { do: 'begin-voting' }
  /** Let ready nodes start, at most so many; the first time the job becomes `running`. */
  | { do: 'start'; limit: number }
  /** The run timeout was changed: commands that run get their part of it. */
  | { do: 'change-timeouts' }
  /** Nodes that have not voted, and cannot any more, become `unavailable`. */
  | { do: 'close-voting' }
  /** Abort the nodes that a caller named. The job goes on. */
  | { do: 'abort-nodes' }
  | { do: 'abort'; ending: PushJobOutcome; soft: boolean; reason: string; cause: AbortCause | undefined }
  | { do: 'end'; outcome: PushJobOutcome };

/**
 * What applies, in this order; never empty. The holder of the duty takes the next one only if the
 * one before changes nothing, because rows are locked. Timeouts of the job come first.
 */
export function decideActions(view: PushJobSnapshot): Iterable<CoordinatorAction> {
  switch (view.job.state) {
    case 'waiting':
      return [whileWaiting(view)];
    case 'voting':
      return whileVoting(view);
    case 'running':
      return whileRunning(view);
    case 'aborting':
      return whileAborting(view);
    case 'ended':
      return [{ do: 'wait', forMs: undefined }];
    default:
      return view.job.state satisfies never;
  }
}

function whileWaiting({ job, ticket, ticketTimeoutMs, stateMs }: PushJobSnapshot): CoordinatorAction {
  if (job.abortRequested) return abort('aborted', 'a caller asked for it');
  if (ticket === 'active' || ticket === 'none') return { do: 'begin-voting' };
  if (ticket === 'lost') return abort('aborted', LOST);
  const leftMs = ticketTimeoutMs - stateMs;
  if (leftMs > 0) return { do: 'wait', forMs: leftMs };
  return abort('timed_out', `its ticket was not active within ${ticketTimeoutMs / 1000} s`);
}

function* whileVoting(view: PushJobSnapshot): Generator<CoordinatorAction> {
  const { job, nodeCounts, ticket, toAbort, ageMs } = view;
  if (job.abortRequested) return yield abort('aborted', 'a caller asked for it');
  if (ticket === 'lost') return yield abort('aborted', LOST);
  if (toAbort > 0) yield { do: 'abort-nodes' };
  if (nodeCounts.ready > 0 && nodeCounts.ready >= job.quorum)
    yield { do: 'start', limit: mayStart(view, nodeCounts.ready).limit };
  else if (nodeCounts.ready + nodeCounts.new < Math.max(1, job.quorum))
    return yield abort(
      'quorum_failed',
      `only ${nodesOf(nodeCounts.ready + nodeCounts.new)} could become ready; the quorum was ${job.quorum}`,
      { cause: 'no-quorum' },
    );
  const leftMs = job.votingTimeoutMs - ageMs;
  if (leftMs > 0) return yield { do: 'wait', forMs: leftMs };
  yield abort('quorum_failed', `only ${nodesOf(nodeCounts.ready)} became ready in time; the quorum was ${job.quorum}`, {
    cause: 'voting-timeout',
  });
}

function* whileRunning(view: PushJobSnapshot): Generator<CoordinatorAction> {
  const { job, nodeCounts, ticket, started, toAbort, outdatedTimeouts, ageMs, stateMs } = view;
  if (job.abortRequested === 'hard') return yield abort('aborted', 'a caller asked for it');
  if (job.abortRequested === 'soft') return yield abort('aborted', 'a caller asked for it', { soft: true });
  const failed = FAILURES.reduce((sum, state) => sum + nodeCounts[state], 0);
  if (job.maxFailures !== undefined && failed > job.maxFailures)
    return yield abort('aborted', `${nodesOf(failed)} failed; at most ${job.maxFailures} may fail`, {
      soft: true,
      cause: 'failures',
    });
  if (nodeCounts.new + nodeCounts.ready + nodeCounts.running === 0) return yield { do: 'end', outcome: 'complete' };
  if (ticket === 'lost') return yield abort('aborted', LOST);
  const runLeftMs = job.runTimeoutMs - stateMs;
  if (runLeftMs <= 0)
    return yield abort('timed_out', `it did not end within ${job.runTimeoutMs / 1000} s`, { cause: 'run-timeout' });
  if (toAbort > 0) yield { do: 'abort-nodes' };
  const votingLeftMs = job.votingTimeoutMs - ageMs;
  if (nodeCounts.new > 0 && votingLeftMs <= 0) yield { do: 'close-voting' };
  // A started node counts as ready until its start is known.
  const { limit, inMs } = mayStart(view, nodeCounts.ready + nodeCounts.running - started);
  if (limit > 0) yield { do: 'start', limit };
  // Last, so that a caller that changes the timeout again and again holds up no start.
  if (outdatedTimeouts > 0) yield { do: 'change-timeouts' };
  yield {
    do: 'wait',
    forMs: Math.min(runLeftMs, inMs, nodeCounts.new > 0 && votingLeftMs > 0 ? votingLeftMs : runLeftMs),
  };
}

function* whileAborting(view: PushJobSnapshot): Generator<CoordinatorAction> {
  const { job, nodeCounts, ticket, started, toCancel, toAbort, toRelease, outdatedTimeouts, stateMs } = view;
  const outcome = job.ending ?? 'aborted';
  if (toRelease > 0) yield abort(outcome, 'some of its nodes take part still', { soft: job.isSoft });
  if (!job.isSoft && toCancel > 0) yield abort(outcome, 'some of its commands have not been cancelled yet');
  if (job.isSoft && toAbort > 0) yield { do: 'abort-nodes' };
  if (job.isSoft && outdatedTimeouts > 0) yield { do: 'change-timeouts' };
  if (started === 0 && nodeCounts.running === 0 && toRelease === 0) return yield { do: 'end', outcome };
  if (job.isSoft && job.abortRequested === 'hard') return yield abort(outcome, 'a caller asked for it');
  if (job.isSoft && ticket === 'lost') return yield abort(outcome, LOST);
  const leftMs = (job.isSoft ? job.runTimeoutMs : job.abortTimeoutMs) - stateMs;
  if (leftMs > 0) return yield { do: 'wait', forMs: leftMs };
  yield job.isSoft ? abort(outcome, 'its commands did not end in time') : { do: 'end', outcome };
}

const nodesOf = (count: number): string => `${count} ${count === 1 ? 'node' : 'nodes'}`;

/** Nodes started by one statement. More are started by the next. */
const MAX_STARTS = 1_000;

/** How many of the nodes that wait may start now, and in how many ms the next ones may. */
function mayStart(
  { job, started, startBucketFullInMs }: PushJobSnapshot,
  waiting: number,
): { limit: number; inMs: number } {
  const { concurrency = Number.POSITIVE_INFINITY, startRate } = job;
  const room = Math.max(0, Math.min(MAX_STARTS, waiting, concurrency - started));
  if (startRate === undefined || room === 0) return { limit: room, inMs: Number.POSITIVE_INFINITY };
  const limiter = startLimitOf(startRate);
  const limit = Math.min(room, Math.floor(limiter.burst));
  const inMs = limiter.waitMs(limit, startBucketFullInMs, 0);
  return inMs === 0 ? { limit, inMs } : { limit: 0, inMs };
}

/**
 * Nodes start in groups of a tenth of a second, so a high rate costs ten statements per second. In
 * each second at most a tenth more than the rate starts.
 */
const startLimitOf = (perSecond: number): RateLimit => new RateLimit({ perSecond, burst: Math.max(1, perSecond / 10) });

const burstMs = ({ burst, perSecond }: RateLimit): number => (burst * 1000) / perSecond;

/**
 * Limits the rate of a job's starts by a token bucket, kept as the time at which it is full again
 * (platform/limiting/rate-limiter.ts). Each start also stores this time with the job, on the
 * database's clock: a holder of the duty that begins, or begins again, continues from it. Then it
 * counts on its own clock.
 */
export class StartRateLimiter {
  #fullAt: number | undefined;

  /** Ms until the bucket is full again; negative: since it is. */
  fullInMs({ job: { startRate }, startBucketFullInMs }: StoredBucket, now: number): number {
    this.#fullAt ??= now + startBucketFullInMs;
    // More was charged at another rate, or the database's clock has stepped back.
    if (startRate !== undefined) this.#fullAt = Math.min(this.#fullAt, now + burstMs(startLimitOf(startRate)));
    return this.#fullAt - now;
  }

  charge({ startRate }: CoordinatedJob, count: number, now: number): void {
    if (startRate !== undefined) this.#fullAt = startLimitOf(startRate).charge(count, this.#fullAt ?? now, now);
  }
}

type StoredBucket = Pick<PushJobSnapshot, 'job' | 'startBucketFullInMs'>;

const LOST = 'its ticket ended before it did';

const abort = (
  ending: PushJobOutcome,
  reason: string,
  { soft = false, cause }: { soft?: boolean; cause?: AbortCause } = {},
): CoordinatorAction => ({ do: 'abort', ending, soft, reason, cause });

/** The status of a job for callers of /push-jobs; /pushy shows another one while it is aborting. */
export function toJobStatus(
  state: PushJobState,
  outcome: PushJobOutcome | null,
): Exclude<PushJobState, 'ended'> | PushJobOutcome {
  return state === 'ended' ? (outcome ?? 'aborted') : state;
}

/**
 * How many nodes a quorum is: a number of nodes, or a percentage of them, rounded up. In SQL:
 * cnapi_push_quorum.
 */
export function countQuorum(quorum: number | { percent: number }, nodes: number): number {
  return typeof quorum === 'number' ? quorum : Math.max(1, Math.ceil((quorum.percent / 100) * nodes - 1e-9));
}

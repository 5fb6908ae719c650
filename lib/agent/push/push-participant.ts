/**
 * The part of an agent that takes part in push jobs: votes, waits for the start, and says when it
 * has nothing to do with a job any more. `node-state.ts` decides. The start is the task
 * `push_command` (`tasks.ts`), which fetches here what was prepared. Owned by Agent.
 */

import { withoutUndefined } from '../../platform/defined-fields.ts';
import { messageOf } from '../../platform/errors.ts';
import { BoundedMap } from '../../platform/limiting/bounded-map.ts';
import type { Logger } from '../../platform/log.ts';
import type { Clock, Timer } from '../../platform/time/clock.ts';
import type { AgentFrame, PushAbortFrame, PushPrepareFrame, PushTimeoutFrame } from '../../protocol/link/frames.ts';
import { type PushRefusal, pushEnds } from '../../protocol/push.ts';
import { TaskFailure } from '../task-failure.ts';
import { type NodeEffect, type NodeEvent, type NodeState, stepNode } from './node-state.ts';
import type { PrepareRefusal } from './refusal.ts';

export interface PushParticipantDeps {
  clock: Clock;
  log: Logger;
  serverUuid: string;
  send(frame: AgentFrame): boolean;
  /** Why this machine does not run the command; undefined if it does. */
  refusalOf(prepare: PushPrepareFrame): Promise<PrepareRefusal | undefined>;
}

/** A job whose command runs. */
export interface PushRun {
  prepare: PushPrepareFrame;
  /** Aborts when the job wants its command ended; the reason is the failure to end with. */
  signal: AbortSignal;
  /** Call it once no process of the command's group runs any more. */
  ended(): void;
}

interface OwnVote {
  jobId: string;
  ready: boolean;
  reason?: PushRefusal;
  busyWith?: string;
}

/** Prepares whose check has not ended; a check may start processes. */
const MAX_CHECKS = 16;
const MAX_REMEMBERED = 1_000;

export class PushParticipant {
  readonly #deps: PushParticipantDeps;
  #state: NodeState = { name: 'startup' };
  #prepared: PushPrepareFrame | undefined;
  /** The time limit that replaced the one of the command's task. */
  #timeoutMs: number | undefined;
  #onTimeout: ((timeoutMs: number) => void) | undefined;
  #refusalMessage: string | undefined;
  #timer: Timer | undefined;
  #isStopping = false;
  #stopping = new AbortController();
  /** The prepare of each job whose check has not ended. */
  readonly #checking = new Map<string, PushPrepareFrame>();
  /** The last jobs whose commands this process has started. */
  readonly #hasRun = new BoundedMap<string, true>(MAX_REMEMBERED);

  constructor(deps: PushParticipantDeps) {
    this.#deps = deps;
  }

  get state(): NodeState {
    return this.#state;
  }

  /** Call it once the commands that the former process left behind have ended. */
  recovered(): void {
    this.#on({ type: 'recovered' });
  }

  /** A session is open. It learns of the vote again, in case the former one was lost. */
  sessionOpened(): void {
    this.#on({ type: 'session' });
    if (this.#state.name === 'waiting') this.#on({ type: 'prepare', jobId: this.#state.jobId });
  }

  async onPrepare(frame: PushPrepareFrame): Promise<void> {
    const { job: jobId } = frame;
    if (this.#isStopping) return this.#vote({ jobId, ready: false, reason: 'stopping' });
    // For another job, or a repetition that is answered with the same vote: nothing to check.
    if (this.state.name !== 'ready') return this.#on({ type: 'prepare', jobId });
    // A prepare that was sent long ago, over a slow link.
    if (this.#hasRun.get(jobId) === true) return;
    // An instance repeats a prepare that has no answer, so this one may be dropped.
    if (this.#checking.size >= MAX_CHECKS || this.#checking.has(jobId)) return;
    this.#checking.set(jobId, frame);
    const refusal = await this.#refusalOf(frame);
    // An abort came during the check (and perhaps a new prepare), or the agent is stopping.
    if (this.#checking.get(jobId) !== frame) return;
    this.#checking.delete(jobId);
    const isFree = this.#state.name === 'ready';
    this.#refusalMessage = isFree ? refusal?.message : undefined;
    this.#on({ type: 'prepare', jobId, refusal: refusal?.reason });
    if (!isFree || this.#state.name !== 'waiting') return;
    this.#prepared = frame;
    this.#timer = this.#deps.clock.after(frame.readyMs, () => this.#on({ type: 'waited-too-long' }));
  }

  async #refusalOf(frame: PushPrepareFrame): Promise<PrepareRefusal | undefined> {
    try {
      return await this.#deps.refusalOf(frame);
    } catch (err) {
      this.#deps.log.error(
        { server_uuid: this.#deps.serverUuid, push_job: frame.job, err },
        'push job: the command could not be checked against the allow list',
      );
      return { reason: 'bad-options', message: `the command could not be checked: ${messageOf(err)}` };
    }
  }

  onAbort({ job: jobId }: PushAbortFrame): void {
    this.#checking.delete(jobId);
    this.#on({ type: 'abort', jobId });
  }

  /** May be called before the command starts, and several times. */
  onTimeout({ job: jobId, timeoutMs }: PushTimeoutFrame): void {
    if (!('jobId' in this.#state) || this.#state.jobId !== jobId || this.#timeoutMs === timeoutMs) return;
    const { log, serverUuid } = this.#deps;
    log.info({ server_uuid: serverUuid, push_job: jobId, timeout_ms: timeoutMs }, 'push job: timeout changed');
    this.#timeoutMs = timeoutMs;
    this.#onTimeout?.(timeoutMs);
  }

  /**
   * The job's start. `onTimeout` is called with each limit that the command is given instead of
   * that of its task. @throws TaskFailure if this agent does not wait for it: nothing may run
   */
  begin(jobId: string, onTimeout?: (timeoutMs: number) => void): PushRun {
    const prepare = this.#prepared;
    this.#on({ type: 'start', jobId });
    if (this.#state.name !== 'running' || this.#state.jobId !== jobId || prepare?.job !== jobId)
      throw new TaskFailure(
        pushEnds.startRefused,
        `this agent did not wait for push job ${jobId}: nothing was started`,
      );
    this.#hasRun.set(jobId, true);
    this.#stopping = new AbortController();
    this.#onTimeout = onTimeout;
    if (this.#timeoutMs !== undefined) onTimeout?.(this.#timeoutMs);
    return { prepare, signal: this.#stopping.signal, ended: () => this.#on({ type: 'exited' }) };
  }

  /** This process ends: a vote is withdrawn. */
  stop(): void {
    this.#isStopping = true;
    for (const jobId of this.#checking.keys()) this.#vote({ jobId, ready: false, reason: 'stopping' });
    this.#checking.clear();
    this.#on({ type: 'stop' });
  }

  #on(event: NodeEvent): void {
    const from = this.#state;
    const { state, effects } = stepNode(from, event);
    this.#state = state;
    if (from.name === 'waiting' && state.name !== 'waiting') this.#timer?.cancel();
    if (state.name === 'ready') {
      this.#prepared = undefined;
      this.#timeoutMs = undefined;
      this.#onTimeout = undefined;
    }
    for (const effect of effects) this.#do(effect);
  }

  #do(effect: NodeEffect): void {
    const { send } = this.#deps;
    switch (effect.do) {
      case 'vote':
        return this.#vote(effect);
      case 'say-aborted':
        send({ type: 'push_aborted', job: effect.jobId });
        return;
      case 'terminate':
        return this.#stopping.abort(new TaskFailure(pushEnds.aborted, 'the push job was aborted'));
      default:
        return effect satisfies never;
    }
  }

  #vote({ jobId, ready, reason, busyWith }: OwnVote): void {
    const { send, log, serverUuid } = this.#deps;
    const details = {
      ...withoutUndefined({ reason, busyWith, message: this.#refusalMessage }),
    };
    this.#refusalMessage = undefined;
    log.info({ server_uuid: serverUuid, push_job: jobId, ready, ...details }, 'push job: voted');
    send({ type: 'push_vote', job: jobId, ready, ...details });
  }
}

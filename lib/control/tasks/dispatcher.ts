/**
 * Gives queued tasks to what can send them, and writes agents' reports to the database. Owns both
 * ways of sending (`dispatch/`), its part of the slow poll, and the recorder. Everything it does
 * is safe to do twice and on two instances concurrently: the roster's row or the attempt fences each
 * statement (docs/design/tasks.md).
 *
 *     hint (created here, or by bus) ─┐
 *     inventory ── reconciler ────────┼──▶ session-dispatch.ts
 *     slow poll ──────────────────────┘
 *     servers without a session, hinted or in the slow poll ──▶ the dispatch that the core gives
 *     slow poll ──▶ sweep tasks that no agent takes or will report
 *     task_event, task_end ──▶ recorder ──▶ task_ack; waiters are woken, here and by bus
 */

import type { Bus } from '../../platform/bus/bus.ts';
import { chunksOf } from '../../platform/chunks.ts';
import { DatabaseUnavailableError } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { Database } from '../../platform/postgres/database.ts';
import { runEachStep } from '../../platform/postgres/each-step.ts';
import { type Clock, settlesWithin } from '../../platform/time/clock.ts';
import { publishChanges } from '../../platform/waits/changes.ts';
import type { InventoryFrame, TaskEndFrame, TaskEventFrame } from '../../protocol/link/frames.ts';
import { DeadlineCounter, tickLagMs } from './deadlines/deadline-counter.ts';
import { advanceTicks, recordFullServers, type SweepOptions, sweepTasks } from './deadlines/deadline-store.ts';
import type { PostDispatch, PostOutcomes, PostStats } from './dispatch/post-dispatch.ts';
import { Reconciler } from './dispatch/reconciler.ts';
import { SessionDispatch } from './dispatch/session-dispatch.ts';
import type { ChangedTask } from './record/change-result.ts';
import { Recorder } from './reports/recorder.ts';
import type { TaskSession, TaskSessions } from './sessions.ts';
import { TASK_ENDS_TOPIC, taskTopic } from './task-topics.ts';

interface DispatcherConfig {
  taskStartByMs: number;
  taskResendMs: number;
  taskOverdueMs: number;
  slowPollMs: number;
}

export interface DispatcherDeps {
  database: Database;
  bus: Bus;
  sessions: TaskSessions;
  /** Creates what sends tasks to servers without a session. */
  createPostDispatch: (outcomes: PostOutcomes) => PostDispatch;
  clock: Clock;
  log: Logger;
  config: DispatcherConfig;
  /** A task changed: wakes those who wait for it here. */
  wake: (changed: ChangedTask) => void;
}

export interface DispatcherStats extends PostStats {
  /** Servers to claim for. */
  wanted: number;
  inventories: number;
  /** Bytes of reports on their way into the database. */
  reportBytes: number;
  droppedEvents: number;
  refusedEnds: number;
  sent: number;
  resent: number;
  swept: number;
}

const MAX_SWEEP_BATCHES = 20;
/** How many servers without an answered claim one statement stores. */
const MAX_RECORDED_AT_ONCE = 2_000;
/** Half of the time that the owner gives all of `stop`. */
const CLAIMS_STOP_WITHIN_MS = 1_000;

export class Dispatcher {
  readonly sessionDispatch: SessionDispatch;
  readonly postDispatch: PostDispatch;
  readonly #deps: DispatcherDeps;
  readonly #recorder: Recorder;
  readonly #reconciler: Reconciler;
  /** Since when the database has answered every poll, on this process's clock. */
  #answersSince: number | undefined;
  readonly #ticks: DeadlineCounter;
  /**
   * When a task is queued, the counter may lag this much and then catch up in one step. The lag is
   * added to the deadline, so no task is swept early.
   */
  readonly #tickLagMs: number;
  #swept = 0;

  constructor(deps: DispatcherDeps) {
    this.#deps = deps;
    const { database, clock, log, sessions } = deps;
    this.#tickLagMs = tickLagMs(deps.config);
    this.#ticks = new DeadlineCounter(this.#tickLagMs);
    const onChanged = (changed: readonly ChangedTask[]) => this.announce(changed);
    this.#recorder = new Recorder({
      database,
      clock,
      log,
      onChanged,
      onStored: (serverUuids) => this.sessionDispatch.onStored(serverUuids),
    });
    this.sessionDispatch = new SessionDispatch({
      ...deps,
      fail: (subject, error) => this.#recorder.fail(subject, error),
    });
    this.postDispatch = deps.createPostDispatch({
      record: (subject, end, acknowledge) => this.#recorder.endOfPost(subject, end, acknowledge),
      onChanged,
    });
    this.#reconciler = new Reconciler({
      database,
      sessions,
      clock,
      log,
      onChanged,
      onSettled: (serverUuid) => this.sessionDispatch.hint(serverUuid),
    });
  }

  start(): void {
    this.postDispatch.start();
  }

  /** A session began: the agent says which tasks it has. */
  onInventory(session: TaskSession, frame: InventoryFrame): void {
    this.#reconciler.add(session, frame);
  }

  onTaskEvent(session: TaskSession, frame: TaskEventFrame): void {
    this.#recorder.event(session, frame);
  }

  onTaskEnd(session: TaskSession, frame: TaskEndFrame): void {
    this.#recorder.end(session, frame);
  }

  /** Wakes the callers that wait for these tasks, on every instance. */
  announce(changed: readonly ChangedTask[]): void {
    const { bus, wake } = this.#deps;
    for (const task of changed) {
      wake(task);
      if (!task.ended) bus.publish(taskTopic(task.id), { id: task.id });
    }
    const ended = changed.flatMap((task) => (task.ended ? [task.id] : []));
    publishChanges(bus, TASK_ENDS_TOPIC, ended);
  }

  /**
   * Does all work that a hint may have missed. @throws DatabaseUnavailableError, DatabaseBusyError
   */
  async poll(): Promise<void> {
    void this.postDispatch.poll();
    let isNoted = false;
    const note = async () => {
      await this.#noteUnansweredClaims();
      isNoted = true;
    };
    const sweep = () => this.#sweep({ mayEndQueued: isNoted });
    try {
      await runEachStep([() => this.#advanceTicks(), note, () => this.sessionDispatch.poll(), sweep]);
    } catch (error) {
      // Otherwise one slow or locked statement would stop the deadlines of all tasks.
      if (error instanceof DatabaseUnavailableError) {
        this.#answersSince = undefined;
        this.#ticks.forget();
      }
      throw error;
    }
  }

  async stop(): Promise<void> {
    const claims = Promise.all([this.sessionDispatch.stop(), this.#reconciler.stop(), this.postDispatch.stop()]);
    // Otherwise one slow statement of theirs would leave no time to store the ends of tasks.
    await settlesWithin(this.#deps.clock, CLAIMS_STOP_WITHIN_MS, claims);
    await this.#recorder.stop();
  }

  stats(): DispatcherStats {
    return {
      ...this.sessionDispatch.stats(),
      inventories: this.#reconciler.size,
      reportBytes: this.#recorder.size,
      droppedEvents: this.#recorder.droppedEvents,
      refusedEnds: this.#recorder.refusedEnds,
      swept: this.#swept,
      ...this.postDispatch.stats(),
    };
  }

  /** The zone's time advances while any instance is healthy. */
  async #advanceTicks(): Promise<void> {
    const { clock, database } = this.#deps;
    const proposal = this.#ticks.propose(clock.now());
    const tick = await advanceTicks(database, proposal);
    this.#ticks.answered(proposal, tick, clock.now());
  }

  /**
   * Claims fail, or do not begin: what is queued for these servers has no chance to be taken, and
   * gets its whole time again, whichever instance sweeps.
   */
  async #noteUnansweredClaims(): Promise<void> {
    const servers = [...this.sessionDispatch.endClaimPeriod(), ...this.postDispatch.endClaimPeriod()];
    for (const some of chunksOf(servers, MAX_RECORDED_AT_ONCE)) await recordFullServers(this.#deps.database, some);
  }

  /**
   * No agent could take or report anything while the database was unreachable, so waiting tasks get
   * their whole time again (law 4).
   */
  #sweepOptions(): SweepOptions {
    const { taskStartByMs, taskOverdueMs } = this.#deps.config;
    const now = this.#deps.clock.now();
    this.#answersSince ??= now;
    const answeredMs = now - this.#answersSince;
    return {
      startByMs: answeredMs < taskStartByMs ? undefined : taskStartByMs + this.#tickLagMs,
      overdueMs: answeredMs < taskOverdueMs ? undefined : taskOverdueMs,
      hasRoomForPosts: this.postDispatch.hasRoom,
    };
  }

  async #sweep({ mayEndQueued }: { mayEndQueued: boolean }): Promise<void> {
    const all = this.#sweepOptions();
    const options = mayEndQueued ? all : { ...all, startByMs: undefined };
    for (let batches = 0; batches < MAX_SWEEP_BATCHES; batches++) {
      const ids = await sweepTasks(this.#deps.database, options);
      if (ids.length === 0) return;
      this.#swept += ids.length;
      this.#deps.log.warn({ tasks: ids }, 'task: ended overdue tasks');
      this.announce(ids.map((id) => ({ id, ended: true })));
    }
  }
}

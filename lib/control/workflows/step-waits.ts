/**
 * The waits of all workflow jobs that this instance carries out. A round runs a bounded number of
 * statements: the number depends neither on the number of jobs nor on other callers' tasks. A job
 * that is woken checks its own condition, so waking it too often is harmless. Owned by
 * `workflow-runner.ts`.
 */
import type { Logger } from '../../platform/log.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { Loop } from '../../platform/time/loop.ts';
import type { Servers } from '../servers/servers.ts';
import type { Tasks } from '../tasks/tasks.ts';
import type { Waitlist } from '../waitlist/waitlist.ts';
import { readWaitingWorkflowJobs } from './step-store.ts';

export interface StepWaitsDeps {
  database: Queryable;
  clock: Clock;
  log: Logger;
  tasks: Pick<Tasks, 'endedAmong' | 'busyAmong'>;
  servers: Pick<Servers, 'boots'>;
  waitlist: Pick<Waitlist, 'statuses'>;
}

/** What ends a wait, beside a change of the job itself. */
export type StepCondition =
  /** The end of this task. */
  | { kind: 'task'; taskId: string }
  /** The server has no unfinished task. */
  | { kind: 'idle'; serverUuid: string; timeoutMs: number }
  /** The ticket waits no longer. */
  | { kind: 'ticket'; ticket: string; timeoutMs: number }
  /** The server runs, and its boot time is another one. */
  | { kind: 'boot'; serverUuid: string; lastBoot: unknown; timeoutMs: number };

interface Wait {
  /** Undefined: nothing but a change of the job. */
  awaited: StepCondition | undefined;
  /** The work on the job knows that it was cancelled. */
  isCancelled: boolean;
  wake: AbortController;
}

/** How often the waits are looked at when nothing is announced. */
const POLL_MS = 2_000;

export class StepWaits {
  readonly #deps: StepWaitsDeps;
  readonly #waits = new Map<string, Wait>();
  readonly #loop: Loop;

  constructor(deps: StepWaitsDeps) {
    this.#deps = deps;
    this.#loop = new Loop({
      clock: deps.clock,
      log: deps.log,
      what: 'workflow jobs: look at the waits',
      work: () => this.#poll(),
      pauseMs: Number.POSITIVE_INFINITY,
      minPauseMs: POLL_MS,
      first: 'pause',
    });
  }

  start(): void {
    this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** From now on what happens to this job ends its next sleep, also before it sleeps. */
  open(jobId: string): Wait {
    const wait: Wait = { awaited: undefined, isCancelled: false, wake: new AbortController() };
    this.#waits.set(jobId, wait);
    return wait;
  }

  close(jobId: string, wait: Wait): void {
    if (this.#waits.get(jobId) === wait) this.#waits.delete(jobId);
  }

  /** Resolves when the wait is over, or `signal` aborts. */
  async sleep({ wake }: Wait, signal: AbortSignal): Promise<void> {
    this.#loop.trigger();
    const isOver = AbortSignal.any([wake.signal, signal]);
    if (!isOver.aborted) await new Promise((resolve) => isOver.addEventListener('abort', resolve, { once: true }));
  }

  wakeJobs(ids: readonly string[]): void {
    for (const id of ids) this.#waits.get(id)?.wake.abort();
  }

  tasksEnded(ids: readonly string[]): void {
    const ended = new Set(ids);
    this.#wakeIf(({ awaited }) => awaited?.kind === 'task' && ended.has(awaited.taskId));
  }

  #wakeIf(isOver: (wait: Wait) => boolean): void {
    for (const wait of this.#waits.values()) if (isOver(wait)) wait.wake.abort();
  }

  async #poll(): Promise<void> {
    const waits = [...this.#waits].filter(([, { awaited }]) => awaited !== undefined);
    if (waits.length === 0) return;
    // There will be something to look at in the next round, too.
    this.#loop.trigger();
    const { database, tasks, servers, waitlist } = this.#deps;
    const jobs = await readWaitingWorkflowJobs(
      database,
      waits.map(([id]) => id),
    );
    for (const [id, { awaited, isCancelled, wake }] of waits) {
      const job = jobs.get(id);
      const timeoutMs = awaited === undefined || awaited.kind === 'task' ? Number.POSITIVE_INFINITY : awaited.timeoutMs;
      if (job === undefined || job.isCancelled !== isCancelled || job.stepMs >= timeoutMs) wake.abort();
    }
    const all = waits.flatMap(([, { awaited }]) => awaited ?? []);
    this.tasksEnded(await tasks.endedAmong(all.flatMap((each) => (each.kind === 'task' ? [each.taskId] : []))));
    const draining = all.flatMap((each) => (each.kind === 'idle' ? [each.serverUuid] : []));
    const busy = await tasks.busyAmong(draining);
    const rebooting = all.flatMap((each) => (each.kind === 'boot' ? [each.serverUuid] : []));
    const boots = await servers.boots(rebooting);
    const tickets = await waitlist.statuses(all.flatMap((each) => (each.kind === 'ticket' ? [each.ticket] : [])));
    this.#wakeIf(({ awaited }) => {
      if (awaited?.kind === 'ticket') return tickets.get(awaited.ticket) !== 'queued';
      if (awaited?.kind === 'idle') return !busy.has(awaited.serverUuid);
      if (awaited?.kind !== 'boot') return false;
      const boot = boots.get(awaited.serverUuid);
      return boot === undefined || (boot.isRunning && boot.lastBoot !== awaited.lastBoot);
    });
  }
}

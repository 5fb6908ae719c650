/**
 * Tasks that a legacy CNAPI posted to the agent's own HTTP port; the CNAPI waits for the answer.
 * They go through the runner and the journal like other tasks. This class hands them to the runner,
 * receives the frames about them and acknowledges their ends. Nobody can ask for the outcome again,
 * so a task that a crash ended is forgotten. Owned by Agent; called by http-port.ts.
 *
 *     post ──► active (in the history) ── task_end ──► finished, failed (acknowledged, answered)
 */
import type { Random } from '../../platform/random.ts';
import { type Clock, isoNow } from '../../platform/time/clock.ts';
import type { AgentFrame, TaskAckFrame, TaskEndFrame, TaskEventFrame, TaskFrame } from '../../protocol/link/frames.ts';
import { maskParams, withSecretUrl } from '../../protocol/secret-params.ts';
import type { Journal } from '../journal/journal.ts';
import { isPostedId, newPostedId } from '../journal/posted-id.ts';
import type { Machine } from '../machine/machine.ts';
import { endFailure } from '../runner/task-end.ts';
import { TaskFailure } from '../task-failure.ts';

export interface PostedTask {
  name: string;
  params: Record<string, unknown>;
  requestId?: string | undefined;
}

/** An entry of the task history, in the form that Triton's agent uses. */
export interface HistoryEntry {
  started_at: string;
  finished_at?: string;
  task: string;
  pid: number;
  params: Record<string, unknown>;
  status: 'active' | 'finished' | 'failed';
  errorCount: number;
  messages: unknown[];
  log: unknown[];
}

interface PostedTasksDeps {
  clock: Clock;
  random: Random;
  /** Hands the task to the runner. */
  give(frame: TaskFrame): void;
  acknowledge(frame: TaskAckFrame): void;
}

interface Posted {
  entry: HistoryEntry;
  answer(end: TaskEndFrame): void;
}

const KEPT = 16;
/** Most messages of one task. */
const MAX_MESSAGES = 100;
const MAX_KEPT_PARAMS = 64 * 1024;
export const MAX_POSTED = 500;
/** The timeout that Triton's agent uses. */
const TIMEOUT_MS = 3_600_000;

export class PostedTasks {
  readonly #deps: PostedTasksDeps;
  readonly #active = new Map<string, Posted>();
  #history: HistoryEntry[] = [];

  constructor(deps: PostedTasksDeps) {
    this.#deps = deps;
  }

  /** Newest last. */
  get history(): readonly HistoryEntry[] {
    return this.#history;
  }

  get isFull(): boolean {
    return this.#active.size >= MAX_POSTED;
  }

  /** Resolves with the task's end in every case. */
  post({ name, params: given, requestId }: PostedTask): Promise<TaskEndFrame> {
    const { clock, random, give } = this.#deps;
    const id = newPostedId(random);
    const params = withSecretUrl(name, given);
    const task = { type: 'task', id, attempt: 1, epoch: 0, name, params, timeoutMs: TIMEOUT_MS } as const;
    const entry = newEntry({ name, params }, isoNow(clock));
    this.#history = [...this.#history, entry].slice(-KEPT);
    const { promise, resolve } = Promise.withResolvers<TaskEndFrame>();
    this.#active.set(id, { entry, answer: resolve });
    give(requestId === undefined ? task : { ...task, requestId });
    return promise;
  }

  /** Receives the runner's frames about a posted task. */
  receive(frame: AgentFrame): void {
    if (frame.type === 'task_event') this.#note(frame);
    if (frame.type === 'task_end') this.#end(frame);
  }

  /**
   * The journal or the agent is gone, so no end will be reported: all active tasks end as
   * OutcomeUnknown.
   */
  giveUp(): void {
    const gone = new TaskFailure('OutcomeUnknown', 'The agent stopped before the task ended');
    for (const id of this.#active.keys()) this.#finish(endFailure({ id, attempt: 1 }, gone, isoNow(this.#deps.clock)));
  }

  #note({ id, event }: TaskEventFrame): void {
    const messages = this.#active.get(id)?.entry.messages;
    if (event.name === 'output' || !messages || messages.length >= MAX_MESSAGES) return;
    messages.push(event);
  }

  #end(end: TaskEndFrame): void {
    const { id, attempt } = end;
    this.#finish(end);
    this.#deps.acknowledge({ type: 'task_ack', id, attempt });
  }

  #finish(end: TaskEndFrame): void {
    const posted = this.#active.get(end.id);
    if (!posted) return;
    this.#active.delete(end.id);
    const { entry } = posted;
    entry.finished_at = isoNow(this.#deps.clock);
    entry.status = end.outcome === 'complete' ? 'finished' : 'failed';
    entry.errorCount = end.outcome === 'complete' ? 0 : 1;
    if (end.error) entry.messages.push(end.error);
    posted.answer(end);
  }
}

/**
 * Runs first in a new process: kills and forgets posted tasks of the previous process. Their
 * callers saw the connection close.
 */
export async function forgetPosted(journal: Journal, machine: Machine): Promise<void> {
  const posted = [...journal.state.tasks.values()].filter(({ id }) => isPostedId(id));
  await Promise.all(
    posted.map(async (task) => {
      if (task.state === 'running' && task.group) await machine.endGroup(task.group);
      await journal.append({ record: 'acknowledged', id: task.id });
    }),
  );
}

function newEntry({ name, params }: PostedTask, startedAt: string): HistoryEntry {
  const isLarge = JSON.stringify(params).length > MAX_KEPT_PARAMS;
  return {
    started_at: startedAt,
    task: name,
    pid: process.pid,
    params: isLarge ? { truncated: true } : maskParams(params),
    status: 'active',
    errorCount: 0,
    messages: [],
    log: [],
  };
}

/**
 * The tasks of one agent, from the frame that brings a task to the acknowledgement of its end.
 * Owned by Agent.
 *
 *     task ──► accepting ── on disk: accepted ──► queued ── its lane is free: started ──► running
 *                  └──────────── cancelled, timed out ───────────┴─► ending ◄─── it ends ────┘
 *     ending ── on disk ──► task_end
 *
 * The journal is written before anything is reported or started. A task that does not start itself
 * is queued during this write, so one write accepts and starts it if its lane is free. An id that
 * is running or has ended never starts again. Ends are repeated to each new session until they are
 * acknowledged. docs/design/tasks.md.
 *
 * Attempts. Each answer names the attempt that was asked about; otherwise the database would ignore
 * it and ask for ever. An attempt above the known one renumbers it, and starts nothing. One below
 * comes from a database that has gone back (a standby that lagged behind): the running task is
 * reported under it from then on. A cancel of a lower attempt is late, and does not affect the
 * higher one, unless the lower one was asked for since.
 */

import { definedFields } from '../../platform/defined-fields.ts';
import { CnapiError, messageOf } from '../../platform/errors.ts';
import { BoundedMap } from '../../platform/limiting/bounded-map.ts';
import { LogLimiter } from '../../platform/limiting/log-limiter.ts';
import type { Logger } from '../../platform/log.ts';
import { isoNow } from '../../platform/time/clock.ts';
import type {
  TaskAckFrame,
  TaskCancelFrame,
  TaskEndFrame,
  TaskEventFrame,
  TaskFrame,
} from '../../protocol/link/frames.ts';
import { hasRoom, type Journal, type JournalTask, type ProcessGroup } from '../journal/journal.ts';
import { isPostedId } from '../journal/posted-id.ts';
import type { PauseKeeper } from '../pause/pause-keeper.ts';
import { TaskFailure } from '../task-failure.ts';
import type { ActiveTask } from './active-task.ts';
import { answerCancel, answerTask, renumber } from './answers.ts';
import { confirmDrain } from './confirm-drain.ts';
import { isTooDeep } from './depth.ts';
import { newLanes } from './lanes.ts';
import type { Outbox } from './outbox.ts';
import { passedMsOf, startRecord, startsOf } from './starts.ts';
import type { AgentServices, Catalogue, TaskContext, TaskDefinition } from './task-definition.ts';
import { type Attempt, endComplete, endFailure, fitEnd } from './task-end.ts';
import { TaskEnds } from './task-ends.ts';
import { agentFull, agentPaused, alreadyEnded, cancelled, timedOut, tooDeep, unknownTask } from './task-failures.ts';
import { TimeLimit } from './time-limit.ts';

interface RunnerDeps extends Pick<TaskContext, 'clock' | 'allowReboot' | 'pushJobs'> {
  services: AgentServices;
  log: Logger;
  serverUuid: string;
  journal: Journal;
  outbox: Outbox;
  tasks: Catalogue;
  pause: PauseKeeper;
}

const MAX_UNPERSISTED_ENDS = 10_000;

export class Runner {
  readonly #deps: RunnerDeps;
  readonly #warnings: LogLimiter;
  readonly #active = new Map<string, ActiveTask>();
  readonly #lanes = newLanes();
  readonly #ends: TaskEnds;
  /** The last ends that a full journal could not store; such an attempt gets the same end again. */
  readonly #unpersistedEnds = new BoundedMap<string, TaskEndFrame>(MAX_UNPERSISTED_ENDS);
  #stopping = false;

  constructor(deps: RunnerDeps) {
    this.#deps = deps;
    this.#warnings = new LogLimiter(deps);
    this.#ends = new TaskEnds(deps);
  }

  get isPaused(): boolean {
    return this.#deps.pause.isPaused;
  }

  /** Call before the first hello: journals ends for tasks that a former process had started. */
  async recover(): Promise<void> {
    const { journal, tasks } = this.#deps;
    const running = [...journal.state.tasks.values()].filter((task) => task.state === 'running');
    await Promise.all(
      running.map(async (one) => {
        if (one.group) await this.#deps.services.machine.endGroup(one.group);
        if (!tasks.get(one.task.name)?.continues) await this.#endLeftover(one);
      }),
    );
  }

  async #endLeftover(task: Extract<JournalTask, { state: 'running' }>): Promise<void> {
    const failure = new TaskFailure('AgentRestarted', 'The agent restarted while the task ran; its outcome is unknown');
    await this.#ends.journal(endFailure(task, failure, isoNow(this.#deps.clock)));
  }

  /**
   * A new session is established: it is sent every end again. Tasks that a former process left to
   * this one continue when the instance has settled the inventory, because the journal may have
   * been rolled back to before they ended; without `settles` (an older instance) now. Posted tasks
   * are in no inventory.
   */
  sessionOpened({ settles }: { settles: boolean }): void {
    this.#ends.repeat();
    this.#continueHeld((id) => !settles || isPostedId(id));
  }

  onSettled(tasks: readonly string[]): void {
    const settled = new Set(tasks);
    this.#continueHeld((id) => settled.has(id));
  }

  /** True for a task of a former process that this one has not continued. */
  isHeld({ id, state }: JournalTask): boolean {
    return state !== 'ended' && !this.#active.has(id);
  }

  #continueHeld(isMeant: (id: string) => boolean): void {
    for (const known of this.#deps.journal.state.tasks.values())
      if (known.state !== 'ended' && this.isHeld(known) && isMeant(known.id)) this.#resume(known.task);
  }

  onTask(frame: TaskFrame): void {
    if (this.#stopping || this.#answerKnown(frame)) return;
    const task = this.#deps.tasks.get(frame.name);
    if (!task) return this.#refuse(frame, unknownTask(frame));
    if (isTooDeep(frame.params)) return this.#refuse(frame, tooDeep());
    const { reasonPaused } = this.#deps.pause;
    if (reasonPaused !== undefined && !task.whilePaused) return this.#refuse(frame, agentPaused(reasonPaused));
    if (!hasRoom(this.#deps.journal.state)) return this.#refuse(frame, agentFull());
    this.#accept(frame, task);
  }

  onAck({ id, attempt }: TaskAckFrame): void {
    const known = this.#deps.journal.state.tasks.get(id);
    if (known?.state !== 'ended' || known.attempt !== attempt) return;
    void this.#deps.journal.append({ record: 'acknowledged', id });
    this.#ends.acknowledged(id);
  }

  /** Ends the task in any state. Journals an unknown id as ended, so it cannot start later. */
  onCancel(frame: TaskCancelFrame): void {
    const { journal, clock, outbox } = this.#deps;
    this.#renumber(frame);
    const active = this.#active.get(frame.id);
    if (active?.frame.attempt === frame.attempt) return this.#abort(active, cancelled());
    const answer = answerCancel(journal.state, frame);
    if (answer.do === 'send-end') this.#ends.send(frame.id);
    else if (answer.do === 'end') this.#cancelKnown(answer.known);
    else if (answer.do === 'say-cancelled') outbox.send(endFailure(frame, cancelled(), isoNow(clock)));
    else if (answer.do === 'end-unknown' && !this.#repeatUnjournalled(frame)) this.#refuse(frame, cancelled());
  }

  #cancelKnown(known: JournalTask): void {
    const active = this.#active.get(known.id);
    if (active) this.#abort(active, cancelled());
    else this.#refuse(known, cancelled());
  }

  /** Called each second while there is a session. */
  tick(now: number): void {
    this.#ends.tick(now);
  }

  /** Stops all work without a report: the journal with these tasks is no longer this agent's. */
  async abandon(): Promise<void> {
    const tasks = [...this.#active.values()];
    this.#active.clear();
    this.#unpersistedEnds.clear();
    for (const active of tasks) {
      active.timer.cancel();
      active.place?.leave();
      active.abort.abort(new TaskFailure('JournalLost', 'The journal of this task is no longer valid'));
    }
    await Promise.all(tasks.map(({ run }) => run));
  }

  /**
   * Ends and journals what runs; what has not started, or continues, is left to the next process.
   */
  async stop(): Promise<void> {
    this.#stopping = true;
    const tasks = [...this.#active.values()];
    for (const active of tasks) {
      active.timer.cancel();
      if (active.task.continues) this.#active.delete(active.frame.id);
      if (active.phase === 'running')
        active.abort.abort(new TaskFailure('AgentStopped', 'The agent was stopped while the task ran'));
    }
    await Promise.all(tasks.map(({ phase, run }) => (phase === 'queued' ? undefined : run)));
  }

  /** True if the id need not start: everything known of it has been sent again. */
  #answerKnown(frame: TaskFrame): boolean {
    const { journal, clock, outbox } = this.#deps;
    this.#renumber(frame);
    const answer = answerTask(journal.state, frame);
    if (answer.do === 'take') return this.#repeatUnjournalled(frame);
    if (answer.do === 'send-end') this.#sendEndUnder(frame, answer.known.end);
    else if (answer.do === 'say-ended') outbox.send(endFailure(frame, alreadyEnded(), isoNow(clock)));
    else this.#sendAccepted(frame);
    return true;
  }

  #sendAccepted({ id, attempt }: Attempt): void {
    const active = this.#active.get(id);
    if (active) active.frame = { ...active.frame, attempt };
    if (active?.isAccepted !== false) this.#event({ id, attempt }, { name: 'accepted' });
  }

  /** An acknowledgement of a lower attempt changes no journal: sends the end again under it. */
  #sendEndUnder({ id, attempt }: Attempt, end: TaskEndFrame): void {
    const { outbox } = this.#deps;
    if (attempt === end.attempt) this.#ends.send(id);
    else if (!this.#ends.isJournalling(id)) outbox.send(fitEnd({ ...end, attempt }, outbox.maxFrameBytes));
  }

  /** Once a higher attempt is asked for, the known task has that number. */
  #renumber({ id, attempt }: Attempt): void {
    const { journal, serverUuid } = this.#deps;
    const known = journal.state.tasks.get(id);
    if (!known || known.attempt === attempt) return;
    const fields = { server_uuid: serverUuid, task: id, attempt, known: known.attempt, state: known.state };
    this.#warnings.warn(fields, 'task: another attempt of a task this agent already has');
    const record = renumber(journal.state, { id, attempt });
    if (record === undefined) return;
    const active = this.#active.get(id);
    if (active) active.frame = { ...active.frame, attempt };
    void journal.append(record);
  }

  #repeatUnjournalled({ id, attempt }: Attempt): boolean {
    const end = this.#unpersistedEnds.get(id);
    if (end === undefined || attempt > end.attempt) return false;
    this.#deps.outbox.send({ ...end, attempt });
    return true;
  }

  /**
   * One write journals acceptance and start if the lane has room, unless the task starts itself.
   */
  #accept(frame: TaskFrame, task: TaskDefinition): void {
    const active = this.#addActive(frame, task, 'accepting');
    active.run = this.#deps.journal.append({ record: 'accepted', task: frame }).then(() => this.#accepted(active));
    if (!task.startsItself) this.#enqueue(active);
  }

  #accepted(active: ActiveTask): void {
    active.isAccepted = true;
    if (!this.#isCurrent(active) || active.phase === 'ending') return;
    this.#event(active.frame, { name: 'accepted' });
    if (active.phase === 'accepting') this.#enqueue(active);
  }

  #resume(frame: TaskFrame): void {
    const task = this.#deps.tasks.get(frame.name);
    if (task) this.#enqueue(this.#addActive(frame, task, 'queued'));
    else this.#refuse(frame, unknownTask(frame));
  }

  #addActive(frame: TaskFrame, task: TaskDefinition, phase: ActiveTask['phase']): ActiveTask {
    const { clock, journal } = this.#deps;
    const known = journal.state.tasks.get(frame.id);
    const onOver = (ms: number) => this.#abort(active, timedOut(active, ms));
    const timer = new TimeLimit({ clock, timeoutMs: frame.timeoutMs, passedMs: passedMsOf(known, clock), onOver });
    const abort = new AbortController();
    const hasStarted = known?.state === 'running';
    const state = { phase, isAccepted: phase === 'queued', hasStarted, place: undefined, run: undefined };
    const active: ActiveTask = { frame, task, abort, timer, ...state };
    this.#active.set(frame.id, active);
    return active;
  }

  #enqueue(active: ActiveTask): void {
    active.phase = 'queued';
    active.place = this.#lanes[active.task.lane].enter(() => {
      if (this.#stopping || !this.#isCurrent(active) || active.phase !== 'queued') return Promise.resolve();
      active.phase = 'running';
      active.run = this.#run(active);
      return active.run;
    });
  }

  async #run(active: ActiveTask): Promise<void> {
    const context = this.#contextOf(active);
    try {
      if (!active.task.startsItself) await context.begin();
      active.abort.signal.throwIfAborted();
      active.hasStarted = true;
      const result = await active.task.run(active.frame.params, context);
      await this.#end(active, endComplete(active.frame, result, isoNow(this.#deps.clock)));
    } catch (error) {
      await this.#end(active, endFailure(active.frame, this.#failureOf(error, active), isoNow(this.#deps.clock)));
    }
  }

  #contextOf(active: ActiveTask): TaskContext {
    const { services, clock, allowReboot, pushJobs, outbox, pause } = this.#deps;
    return {
      ...services,
      clock,
      allowReboot,
      pushJobs,
      id: active.frame.id,
      starts: () => startsOf(this.#deps.journal.state.tasks.get(active.frame.id)),
      signal: active.abort.signal,
      begin: (group) => this.#begin(active, group),
      journalProcesses: (group) => this.#journalProcesses(active, group),
      progress: (value) => {
        if (outbox.hasRoomFor(active.frame.id)) this.#event(active.frame, { name: 'progress', value });
      },
      output: (stream, offset, text) => {
        if (outbox.hasRoomFor(active.frame.id)) this.#event(active.frame, { name: 'output', stream, offset, text });
      },
      changeTimeout: (timeoutMs) => active.timer.change(timeoutMs),
      changePause: (event) => pause.change(event),
      confirmDrain: (jobId) => confirmDrain(this.#deps, { jobId, asking: active.frame.id, active: this.#active }),
    };
  }

  async #begin(active: ActiveTask, group?: ProcessGroup): Promise<void> {
    if (!this.#isCurrent(active)) return;
    const { journal, clock } = this.#deps;
    const record = startRecord(active, journal.state.tasks.get(active.frame.id), { group, now: clock.wallTime() });
    if (record !== undefined) await journal.append(record);
    if (this.#isCurrent(active) && !active.abort.signal.aborted) this.#event(active.frame, { name: 'started' });
  }

  async #journalProcesses(active: ActiveTask, group: ProcessGroup | undefined): Promise<void> {
    const { journal } = this.#deps;
    const { id } = active.frame;
    if (this.#isCurrent(active) && journal.state.tasks.get(id)?.state === 'running')
      await journal.append({ record: 'processes', id, ...definedFields({ group }) });
  }

  #abort(active: ActiveTask, failure: TaskFailure): void {
    if (active.phase === 'running') return active.abort.abort(failure);
    if (active.phase !== 'ending')
      active.run = this.#end(active, endFailure(active.frame, failure, isoNow(this.#deps.clock)));
  }

  async #end(active: ActiveTask, end: TaskEndFrame): Promise<void> {
    active.timer.cancel();
    active.place?.leave();
    if (!this.#isCurrent(active)) return;
    active.phase = 'ending';
    await this.#ends.journal(end);
    if (!this.#isCurrent(active)) return;
    this.#active.delete(active.frame.id);
    this.#logEnd(active, end);
    this.#ends.send(end.id);
  }

  #logEnd({ frame }: ActiveTask, { outcome, error }: TaskEndFrame): void {
    const { log, serverUuid } = this.#deps;
    const { id, attempt, name, requestId } = frame;
    const task = { task: id, attempt, task_name: name, req_id: requestId };
    log.info({ server_uuid: serverUuid, ...task, outcome, code: error?.code }, 'task: ended');
  }

  /** Ends an attempt that never ran. */
  #refuse(attempt: Attempt, failure: TaskFailure): void {
    const { journal, clock, outbox } = this.#deps;
    const { state } = journal;
    const end = endFailure(attempt, failure, isoNow(clock));
    if (!state.tasks.has(end.id) && !hasRoom(state)) {
      this.#unpersistedEnds.set(end.id, end);
      return void outbox.send(end);
    }
    void this.#ends.journal(end).then(() => {
      if (journal.state === state) this.#ends.send(end.id);
    });
  }

  #event({ id, attempt }: Attempt, event: Unreported): void {
    const reportedAt = isoNow(this.#deps.clock);
    this.#deps.outbox.send({ type: 'task_event', id, attempt, event: { ...event, reportedAt } });
  }

  #failureOf(error: unknown, { frame }: ActiveTask): TaskFailure {
    if (error instanceof TaskFailure) return error;
    if (error instanceof CnapiError) return new TaskFailure(error.code, error.message, { cause: error });
    this.#deps.log.error(
      { server_uuid: this.#deps.serverUuid, task: frame.id, task_name: frame.name, err: error },
      'task: failed',
    );
    return new TaskFailure('TaskError', messageOf(error));
  }

  #isCurrent(active: ActiveTask): boolean {
    return this.#active.get(active.frame.id) === active;
  }
}

type WithoutTime<Event> = Event extends unknown ? Omit<Event, 'reportedAt'> : never;
type Unreported = WithoutTime<TaskEventFrame['event']>;

/**
 * Gets tasks to the agents whose sessions this instance holds, and their reports into the database. Owns the claims, the
 * slow poll's share and the recorder; what it does is safe to do twice and on two instances at once, because each
 * statement is fenced by the roster's row or by the attempt (docs/design.md section 6).
 *
 *     hint (created here, or by bus) ─┐
 *     inventory ── reconciler ────────┼──▶ claim for those servers ──▶ `task`, `task_cancel` to their agents
 *     slow poll ──────────────────────┘
 *     slow poll ──▶ send again what was not accepted; sweep what nobody takes or will report
 *     servers with old agents, hinted or in the slow poll ──▶ posts.ts
 *     task_event, task_end ──▶ recorder ──▶ task_ack; whoever waits is told, here and by bus
 */
import type { Bus } from '../bus/bus.ts';
import { TASK_ENDS_TOPIC, taskTopic } from '../bus/topics.ts';
import type { Logger } from '../log.ts';
import type { Database } from '../moray/database.ts';
import type { Clock, Timer } from '../ports/clock.ts';
import { publishChanges } from '../waits/changes.ts';
import { Runner } from '../waits/runner.ts';
import type { InventoryFrame, TaskEndFrame, TaskEventFrame } from '../wire/frames.ts';
import { MAX_TASK_TIMEOUT_MS } from '../wire/limits.ts';
import { taskCapability } from '../wire/tasks.ts';
import {
  type ChangedTask,
  claimTasks,
  type Order,
  readBusyServers,
  readDatabaseTime,
  resendTasks,
  type SweepTimes,
  sweepTasks,
} from './claim-store.ts';
import { ClockSteps } from './clock-steps.ts';
import type { TaskMessenger } from './messenger.ts';
import { type PostStats, Posts } from './posts.ts';
import { Reconciler } from './reconciler.ts';
import { Recorder } from './recorder.ts';
import type { TaskSession, TaskSessions } from './sessions.ts';
import { taskEnds } from './task.ts';

export interface DispatcherConfig {
  taskStartByMs: number;
  taskResendMs: number;
  taskOverdueMs: number;
  adoptGraceMs: number;
}

export interface DispatcherDeps {
  database: Database;
  bus: Bus;
  sessions: TaskSessions;
  /** Reaches servers with old agents; without it their tasks are left to other instances. */
  messenger?: TaskMessenger;
  clock: Clock;
  log: Logger;
  config: DispatcherConfig;
  /** A task changed: wake who waits for it here. */
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

const MAX_SERVERS_PER_CLAIM = 500;
const MAX_SERVERS_PER_POLL = 2_000;
/** In one slow poll; what is left comes first in the next. */
const MAX_RESEND_BATCHES = 20;
/** Ten times this, and the longest timeout that was ever stored, 24 days, is a whole number to SQL. */
const MAX_OVERDUE_MS = 7_000_000;
const MAX_SWEEP_BATCHES = 20;
const CLAIM_LANES = 4;
/** A row is in use for some milliseconds. */
const AGAIN_MS = 50;

export class Dispatcher {
  readonly #deps: DispatcherDeps;
  readonly #recorder: Recorder;
  readonly #reconciler: Reconciler;
  readonly #posts: Posts | undefined;
  readonly #claims: Runner;
  readonly #wanted = new Set<string>();
  /** Servers with a queue that must accept or end something before they are given more. */
  readonly #full = new Set<string>();
  /** Servers to claim for when the timer ends. */
  readonly #passedOver = new Set<string>();
  #again: Timer | undefined;
  /** This process's clock since when every poll has been answered. */
  #answersSince: number | undefined;
  readonly #steps: ClockSteps;
  #sent = 0;
  #resent = 0;
  #swept = 0;

  constructor(deps: DispatcherDeps) {
    this.#deps = deps;
    const { database, clock, log, sessions } = deps;
    this.#steps = new ClockSteps(MAX_TASK_TIMEOUT_MS + deps.config.taskOverdueMs);
    const onChanged = (changed: readonly ChangedTask[]) => this.announce(changed);
    this.#recorder = new Recorder({
      database,
      clock,
      log,
      onChanged,
      onStored: (serverUuids) => this.#claimForFull(serverUuids),
    });
    this.#reconciler = new Reconciler({
      database,
      sessions,
      clock,
      log,
      onChanged,
      onSettled: (serverUuid) => this.hint(serverUuid),
    });
    this.#posts = deps.messenger && this.#createPosts(deps.messenger);
    this.#claims = new Runner({
      clock,
      log,
      what: 'claims of tasks',
      hasWork: () => this.#wanted.size > 0,
      work: () => this.#claimWanted(),
      lanes: CLAIM_LANES,
    });
  }

  start(): void {
    this.#posts?.start();
  }

  /** Claims nothing more for old agents; what is posted goes on. */
  retire(): void {
    this.#posts?.retire();
  }

  /** Nobody has authority for this server, and something may be queued for it: its agent may be an old one. */
  hintUnowned(serverUuid: string): void {
    this.#posts?.hint(serverUuid);
  }

  /** There may be something to claim or to cancel for this server. */
  hint(serverUuid: string): void {
    this.#full.delete(serverUuid);
    if (this.#deps.sessions.get(serverUuid) === undefined) return;
    this.#wanted.add(serverUuid);
    this.#claims.kick();
  }

  onInventory(session: TaskSession, frame: InventoryFrame): void {
    this.#reconciler.add(session, frame);
  }

  onTaskEvent(session: TaskSession, frame: TaskEventFrame): void {
    this.#recorder.event(session, frame);
  }

  onTaskEnd(session: TaskSession, frame: TaskEndFrame): void {
    this.#recorder.end(session, frame);
  }

  /** Wakes who waits for these tasks, on every instance. */
  announce(changed: readonly ChangedTask[]): void {
    const { bus, wake } = this.#deps;
    for (const task of changed) {
      wake(task);
      if (!task.ended) bus.publish(taskTopic(task.id), { id: task.id });
    }
    const ended = changed.flatMap((task) => (task.ended ? [task.id] : []));
    publishChanges(bus, TASK_ENDS_TOPIC, ended);
  }

  /** Everything that a hint might have missed. @throws DatabaseUnavailableError */
  async poll(): Promise<void> {
    this.#reconciler.poll();
    this.#posts?.poll();
    try {
      await this.#claimAll();
      await this.#sweep();
    } catch (error) {
      this.#answersSince = undefined;
      throw error;
    }
  }

  async stop(): Promise<void> {
    await Promise.all([this.#claims.stop(), this.#reconciler.stop(), this.#posts?.stop()]);
    this.#again?.cancel();
    await this.#recorder.stop();
  }

  stats(): DispatcherStats {
    return {
      wanted: this.#wanted.size,
      inventories: this.#reconciler.size,
      reportBytes: this.#recorder.size,
      droppedEvents: this.#recorder.droppedEvents,
      refusedEnds: this.#recorder.refusedEnds,
      sent: this.#sent,
      resent: this.#resent,
      swept: this.#swept,
      ...(this.#posts?.stats() ?? { postsInFlight: 0, posted: 0, postsLost: 0 }),
    };
  }

  #createPosts(messenger: TaskMessenger): Posts {
    return new Posts({
      ...this.#deps,
      messenger,
      run: () => this.#deps.sessions.run(),
      record: (subject, end, acknowledge) => this.#recorder.endOfPost(subject, end, acknowledge),
      onChanged: (changed) => this.announce(changed),
    });
  }

  async #claimWanted(): Promise<void> {
    const servers = [...this.#wanted].slice(0, MAX_SERVERS_PER_CLAIM);
    for (const serverUuid of servers) this.#wanted.delete(serverUuid);
    try {
      await this.#claim(servers.flatMap((serverUuid) => this.#deps.sessions.get(serverUuid) ?? []));
    } catch (error) {
      for (const serverUuid of servers) this.#wanted.add(serverUuid);
      throw error;
    }
  }

  /** With nothing for `overdueMs` only what was asked to end is told to. */
  async #claim(sessions: readonly TaskSession[], overdueMs?: number): Promise<void> {
    if (sessions.length === 0) return;
    const { database, config } = this.#deps;
    const run = this.#deps.sessions.run();
    const { orders, full, more, later } = await claimTasks(database, run, {
      sessions,
      overdueMs,
      resendMs: config.taskResendMs,
    });
    for (const order of orders) this.#carryOut(order);
    for (const serverUuid of full) this.#full.add(serverUuid);
    for (const serverUuid of more) this.hint(serverUuid);
    this.#hintLater(later);
  }

  /** A task of theirs that is to be sent or cancelled is in other hands just now, its report's perhaps. */
  #hintLater(serverUuids: readonly string[]): void {
    for (const serverUuid of serverUuids) this.#passedOver.add(serverUuid);
    if (this.#passedOver.size === 0) return;
    this.#again ??= this.#deps.clock.after(AGAIN_MS, () => {
      this.#again = undefined;
      const again = [...this.#passedOver];
      this.#passedOver.clear();
      for (const serverUuid of again) this.hint(serverUuid);
    });
  }

  /** A report of these servers' agents is stored: they may have room again. */
  #claimForFull(serverUuids: readonly string[]): void {
    for (const serverUuid of serverUuids) if (this.#full.has(serverUuid)) this.hint(serverUuid);
  }

  /** A session that vanished meanwhile takes nothing; the server's next inventory tells what became of it. */
  #carryOut(order: Order): void {
    const { id, attempt, epoch, server_uuid: serverUuid } = order;
    const session = this.#deps.sessions.get(serverUuid);
    if (session === undefined) return;
    if (order.what === 'cancel') {
      session.send({ type: 'task_cancel', id, attempt });
    } else if (session.epoch === epoch) {
      this.#send(session, order);
    }
  }

  #send(session: TaskSession, order: Order): void {
    const { id, attempt, epoch, name, params } = order;
    if (!session.capabilities.has(taskCapability(name))) {
      this.#recorder.fail({ id, attempt, serverUuid: session.serverUuid }, taskEnds.unknownTask);
      return;
    }
    this.#sent += 1;
    session.send({
      type: 'task',
      id,
      attempt,
      epoch,
      name,
      params,
      timeoutMs: Math.min(order.timeout_ms, MAX_TASK_TIMEOUT_MS),
      ...(order.req_id === null ? {} : { requestId: order.req_id }),
    });
  }

  async #resend(sessions: readonly TaskSession[]): Promise<void> {
    for (let batches = 0; batches < MAX_RESEND_BATCHES; batches++) {
      const orders = await resendTasks(this.#deps.database, sessions, this.#deps.config.taskResendMs);
      if (orders.length === 0) return;
      this.#resent += orders.length;
      for (const order of orders) this.#carryOut(order);
    }
  }

  async #claimAll(): Promise<void> {
    const { database, sessions: all } = this.#deps;
    const { serverUuids } = await this.#readWithClock(() => readBusyServers(database, all.run()));
    const sessions = serverUuids.flatMap((serverUuid) => all.get(serverUuid) ?? []);
    for (let start = 0; start < sessions.length; start += MAX_SERVERS_PER_POLL) {
      if (start > 0) await this.#readWithClock(() => readDatabaseTime(database));
      const some = sessions.slice(start, start + MAX_SERVERS_PER_POLL);
      await this.#claim(some, this.#overdueMs());
      await this.#resend(some);
    }
  }

  /** As after an outage: what was queued when the database's clock was set ahead is given its time anew. */
  async #readWithClock<Answer extends { databaseMs: number }>(read: () => Promise<Answer>): Promise<Answer> {
    const { clock, log } = this.#deps;
    const askedAt = clock.now();
    const answer = await read();
    const answeredAt = clock.now();
    if (this.#steps.read({ databaseMs: answer.databaseMs, askedAt, answeredAt })) {
      this.#answersSince = undefined;
      const aheadMs = this.#steps.aheadMs(answeredAt);
      log.warn(
        { ahead_ms: aheadMs },
        'database: its clock was set ahead, or is that of another server; tasks are given as much longer',
      );
    }
    return answer;
  }

  /** How long past its timeout a task is ended from here, as the database counts; undefined when it cannot be said. */
  #overdueMs(): number | undefined {
    const aheadMs = this.#steps.aheadMs(this.#deps.clock.now());
    const overdueMs = this.#deps.config.taskOverdueMs + aheadMs;
    return aheadMs > 0 && overdueMs > MAX_OVERDUE_MS ? undefined : overdueMs;
  }

  /** Nobody could take or report anything while the database was away: what waited is given its time anew (law 4). */
  #sweepTimes(): SweepTimes {
    const { taskStartByMs, taskOverdueMs } = this.#deps.config;
    const now = this.#deps.clock.now();
    this.#answersSince ??= now;
    const answeredMs = now - this.#answersSince;
    return {
      startByMs: answeredMs < taskStartByMs ? undefined : taskStartByMs,
      overdueMs: answeredMs < taskOverdueMs ? undefined : this.#overdueMs(),
    };
  }

  async #sweep(): Promise<void> {
    const times = this.#sweepTimes();
    for (let batches = 0; batches < MAX_SWEEP_BATCHES; batches++) {
      const ids = await sweepTasks(this.#deps.database, times);
      if (ids.length === 0) return;
      this.#swept += ids.length;
      this.#deps.log.warn({ tasks: ids }, 'tasks ended that no server took or reported');
      this.announce(ids.map((id) => ({ id, ended: true })));
    }
  }
}

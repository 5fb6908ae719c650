/**
 * Instances of the tasks subsystem over one database, and agents that connect to them: the link
 * without its sockets. An agent follows the protocol (docs/design/roster.md, tasks.md); the test
 * decides what it does with an attempt.
 */
import { randomUUID } from 'node:crypto';
import { runTopic } from '../../../../lib/control/run-topic.ts';
import type { TaskSession, TaskSessions } from '../../../../lib/control/tasks/sessions.ts';
import { hintedServers } from '../../../../lib/control/tasks/task-topics.ts';
import { Tasks, type TasksConfig } from '../../../../lib/control/tasks/tasks.ts';
import type { Bus } from '../../../../lib/platform/bus/bus.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Database } from '../../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import type {
  InventoryFrame,
  TaskCancelFrame,
  TaskEndFrame,
  TaskEventFrame,
  TaskFrame,
} from '../../../../lib/protocol/link/frames.ts';
import { createMemoryBus, type MemoryHub } from '../../../support/memory-bus.ts';
import { noPosts } from './no-posts.ts';

/** Slow polls that no test waits for by accident. Tests about slow polls set their own. */
const config: TasksConfig = {
  slowPollMs: 60_000,
  slowPollNoBusMs: 60_000,
  taskStartByMs: 30_000,
  taskResendMs: 5_000,
  taskOverdueMs: 60_000,
};

interface Teardown {
  teardown(work: () => unknown): void;
}

export interface InstanceOptions {
  database: Database;
  hub: MemoryHub;
  config?: Partial<TasksConfig>;
  maxWaiters?: number;
}

export class Instance implements TaskSessions {
  /** The id of its run. */
  uuid: string = randomUUID();
  readonly bus: Bus;
  readonly tasks: Tasks;
  readonly database: Database;
  readonly isFull = false;
  readonly held = new Map<string, TaskSession>();

  constructor({ database, hub, maxWaiters, ...options }: InstanceOptions) {
    const ports = { clock: systemClock, random: systemRandom, log: silentLogger };
    this.database = database;
    this.bus = createMemoryBus({ hub, ...ports, beatMs: 50 });
    this.tasks = new Tasks({
      database,
      bus: this.bus,
      sessions: this,
      createPostDispatch: () => noPosts,
      ...ports,
      config: { ...config, ...options.config },
      ...(maxWaiters === undefined ? {} : { maxWaiters }),
    });
  }

  run(): string {
    return this.uuid;
  }

  get(serverUuid: string): TaskSession | undefined {
    return this.held.get(serverUuid);
  }

  /**
   * Like `kill -9`: sessions are gone, and nothing is sent or stored any more, without notice to
   * anybody.
   */
  async die(): Promise<void> {
    this.held.clear();
    await this.stop();
  }

  async stop(): Promise<void> {
    await this.tasks.stop();
    await this.bus.stop();
  }
}

export async function startInstance(t: Teardown, options: InstanceOptions): Promise<Instance> {
  const instance = new Instance(options);
  t.teardown(() => instance.stop());
  await instance.bus.start();
  instance.bus.subscribe(runTopic(instance.uuid), (message) => instance.tasks.hintSessions(hintedServers(message)));
  await instance.tasks.start();
  return instance;
}

type Known = InventoryFrame['tasks'][number];

export class FakeAgent {
  readonly serverUuid = randomUUID();
  capabilities: ReadonlySet<string> = new Set(['task:nop', 'task:command_execute']);
  journalId: string = randomUUID();
  journal = new Map<string, Known & { end?: TaskEndFrame }>();
  /** Every task frame and every cancel that reached it. */
  readonly received: TaskFrame[] = [];
  readonly cancels: TaskCancelFrame[] = [];
  readonly acknowledged: string[] = [];
  /** Frames that get lost on their way to it. */
  loses: (frame: TaskFrame) => boolean = () => false;
  /** What it does with an attempt that it has recorded in its journal. */
  works: (frame: TaskFrame) => void = (frame) => this.complete(frame.id);
  /** Bytes that were sent and have not arrived yet, because the link is slow. */
  unsent: () => number = () => 0;
  epoch = 0;
  #instance: Instance | undefined;
  #session: TaskSession | undefined;

  /** Accepts the agent at this instance as the roster does, with its inventory. */
  async connect(instance: Instance, run = instance.uuid): Promise<void> {
    const { rows } = await instance.database.query<{ epoch: number }>(
      `insert into cnapi_roster_authority as row (server_uuid, cnapi_uuid, run, epoch, status, reason, since, journal_id)
         values ($1::uuid, $2::uuid, $2::uuid, $3::bigint + 1, 'running', 'connected', cnapi_now(), $4::uuid)
         on conflict (server_uuid) do update
           set epoch = row.epoch + 1, run = excluded.run, cnapi_uuid = excluded.cnapi_uuid, status = 'running'
         returning epoch`,
      [this.serverUuid, run, this.epoch, this.journalId],
    );
    this.epoch = rows[0]?.epoch ?? 0;
    const { epoch, serverUuid, journalId, capabilities } = this;
    const unsent = () => this.unsent();
    const session: TaskSession = {
      serverUuid,
      epoch,
      journalId,
      capabilities,
      get isBackedUp() {
        return unsent() > 0;
      },
      get unsentBytes() {
        return unsent();
      },
      send: (frame) => {
        if (this.#session !== session || instance.get(serverUuid) !== session) return false;
        queueMicrotask(() => this.#receive(frame));
        return true;
      },
    };
    this.disconnect();
    this.#instance = instance;
    this.#session = session;
    instance.held.set(serverUuid, session);
    const tasks = [...this.journal.values()].map(({ id, attempt, state }) => ({ id, attempt, state }));
    instance.tasks.onInventory(session, { type: 'inventory', epoch, tasks });
    for (const { end } of this.journal.values()) if (end !== undefined) this.#report(end);
  }

  disconnect(): void {
    if (this.#instance?.get(this.serverUuid) === this.#session) this.#instance?.held.delete(this.serverUuid);
    this.#instance = undefined;
    this.#session = undefined;
  }

  /** A new installation: nothing is remembered. */
  loseJournal(): void {
    this.journalId = randomUUID();
    this.journal = new Map();
  }

  event(id: string, event: Omit<TaskEventFrame['event'], 'reportedAt'> & Record<string, unknown>): void {
    const attempt = this.journal.get(id)?.attempt ?? 1;
    const frame = { type: 'task_event', id, attempt, event: { reportedAt: 'then', ...event } } as TaskEventFrame;
    if (this.#session) this.#instance?.tasks.onTaskEvent(this.#session, frame);
  }

  complete(id: string, result: Record<string, unknown> = {}): void {
    this.#end(id, { outcome: 'complete', result });
  }

  fail(id: string, code: string): void {
    this.#end(id, { outcome: 'failure', error: { code, message: code } });
  }

  /** Sends again what has not been acknowledged. */
  repeatEnds(): void {
    for (const { end } of this.journal.values()) if (end !== undefined) this.#report(end);
  }

  #end(id: string, fields: Pick<TaskEndFrame, 'outcome' | 'result' | 'error'>, cancelled = 1): void {
    const attempt = this.journal.get(id)?.attempt ?? cancelled;
    const end: TaskEndFrame = { type: 'task_end', id, attempt, reportedAt: 'then', ...fields };
    this.journal.set(id, { id, attempt, state: 'ended', end });
    this.#report(end);
  }

  #report(end: TaskEndFrame): void {
    if (this.#session) this.#instance?.tasks.onTaskEnd(this.#session, end);
  }

  #receive(frame: Parameters<TaskSession['send']>[0]): void {
    switch (frame.type) {
      case 'task':
        return this.#take(frame);
      case 'task_cancel':
        this.cancels.push(frame);
        if (this.journal.get(frame.id)?.state === 'ended') return;
        return this.#end(frame.id, { outcome: 'failure', error: { code: 'Cancelled', message: '' } }, frame.attempt);
      case 'task_ack':
        this.acknowledged.push(frame.id);
        this.journal.delete(frame.id);
        return;
      case 'inventory_settled':
        return;
      default:
        frame satisfies never;
    }
  }

  #take(frame: TaskFrame): void {
    if (frame.epoch < this.epoch || this.loses(frame)) return;
    this.received.push(frame);
    if (this.acknowledged.includes(frame.id) && !this.journal.has(frame.id) && frame.attempt === 1) return;
    const isNew = !this.journal.has(frame.id);
    if (isNew) this.journal.set(frame.id, { id: frame.id, attempt: frame.attempt, state: 'accepted' });
    this.event(frame.id, { name: 'accepted' });
    if (isNew) this.works(frame);
  }
}

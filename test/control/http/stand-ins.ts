/** Fakes of the roster, tasks, placement and legacy agents, which answer as a test says. */

import { setTimeout as sleep } from 'node:timers/promises';
import { parseConfig } from '../../../lib/control/config.ts';
import { NoAllocatableServersError } from '../../../lib/control/placement/placement-errors.ts';
import { PushJobNotFoundError } from '../../../lib/control/push/push-errors.ts';
import { PushScheduleNotFoundError } from '../../../lib/control/push/schedules/schedule-errors.ts';
import { ResourceNotFoundError } from '../../../lib/control/request-errors.ts';
import { InstanceNotFoundError, LastInstanceError } from '../../../lib/control/roster/membership/roster-errors.ts';
import { Boot } from '../../../lib/control/servers/boot/boot.ts';
import type { RecordedStatusChange } from '../../../lib/control/servers/routes/server-view.ts';
import type { RecordedTaskEvent, TaskRequest, TaskRow } from '../../../lib/control/tasks/store/task.ts';
import { TaskEndedError, TaskNotFoundError } from '../../../lib/control/tasks/store/task-errors.ts';
import type { TaskFilter } from '../../../lib/control/tasks/store/task-list.ts';
import type { TaskListPage } from '../../../lib/control/tasks/store/task-list-store.ts';
import type { Tasks } from '../../../lib/control/tasks/tasks.ts';
import type { FollowOptions } from '../../../lib/control/tasks/waiters.ts';
import { WorkflowJobNotFoundError } from '../../../lib/control/workflows/workflow-errors.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { BucketStore } from '../../../lib/platform/moray/bucket-store.ts';
import type { Database, Queryable } from '../../../lib/platform/postgres/database.ts';
import { SqlParameters } from '../../../lib/platform/postgres/sql-text.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { queuedRow } from '../tasks/support/queued-row.ts';
import { type Parts, SERVER } from './support.ts';

/** Records what was posted, in order. */
export class FakeLegacyAgents {
  readonly heard: string[] = [];
  readonly made: string[] = [];

  heartbeat(serverUuid: string) {
    this.heard.push(serverUuid);
  }

  async created(serverUuid: string) {
    this.made.push(serverUuid);
  }
}

export class FakeRoster {
  readiness = { ready: true, reasons: [] as string[] };
  removed: string[] = [];
  isLast = false;
  changes: RecordedStatusChange[] = [];

  async listInstances() {
    const run = '11111111-1111-4111-8111-111111111111';
    return [
      {
        cnapiUuid: SERVER,
        run,
        url: 'http://127.0.0.1:1',
        host: '127.0.0.1',
        port: 1,
        pid: 1,
        version: '1.2.3',
        state: 'live' as const,
        isDraining: false,
        beat: 1,
        agents: 2,
        admission: 'open' as const,
        leaseAgeMs: 10,
        startedAt: new Date('2030-01-01T00:00:00.000Z'),
      },
    ];
  }

  async drain(cnapiUuid: string) {
    const [instance] = await this.listInstances();
    if (cnapiUuid !== instance?.cnapiUuid) throw new InstanceNotFoundError(cnapiUuid);
    if (this.isLast) throw new LastInstanceError(cnapiUuid);
    return { ...instance, isDraining: true };
  }

  async statusHistory(_uuid: string, { limit, offset }: { limit: number; offset: number }) {
    return this.changes.slice(offset, offset + limit);
  }

  serverRemoved(uuid: string) {
    this.removed.push(uuid);
  }
}

/** No agent can connect, and no caller at a port. */
export const noStreams = {
  addresses: () => [],
  host: '127.0.0.1',
  streams: {
    add() {
      throw new Error('not here');
    },
  },
};

const noServer = () => Promise.reject(new NoAllocatableServersError('there is none here'));
/** No server takes a VM: test/control/placement tests this on whole instances. */
export const noPlacement = {
  allocator: {
    allocate: noServer,
    release: async () => {},
    explain: noServer,
    capacity: async () => ({ unreserved: new Map(), reasons: new Map() }),
  },
  config: parseConfig({ databaseUrl: 'postgres://localhost/none' }),
  onAllocated: () => {},
};

type TaskEnd = Pick<TaskRow, 'state' | 'outcome' | 'ended_at' | 'result' | 'error'>;

const ENDED = { state: 'ended', ended_at: new Date('2030-01-01T00:00:00.000Z') } as const;

export const finished = (result: TaskRow['result']): TaskEnd => ({
  ...ENDED,
  outcome: 'complete',
  result,
  error: null,
});

export const failed = (message: string): TaskEnd => ({
  ...ENDED,
  outcome: 'failure',
  result: null,
  error: { code: 'Failed', message },
});

/** Tasks that end when a test ends them. */
export class FakeTasks {
  readonly waiters = this;
  readonly all = new Map<string, TaskRow>();
  readonly created: TaskRequest[] = [];
  readonly ids: string[] = [];
  readonly events: RecordedTaskEvent[] = [];
  /** Waits that ended because their caller left. */
  abandoned = 0;
  /** The timeout of each wait. */
  readonly waited: number[] = [];
  waiting = 0;
  /** The result of new tasks, if set. */
  outcome: TaskEnd | undefined;
  readonly #database: Queryable | undefined;

  constructor(database?: Queryable) {
    this.#database = database;
  }

  async findByIdempotencyKey({ idempotencyKey }: TaskRequest) {
    const index = this.created.findIndex(
      (one) => idempotencyKey !== undefined && one.idempotencyKey === idempotencyKey,
    );
    return index < 0 ? undefined : this.ids[index];
  }

  async create(request: TaskRequest) {
    const parameters = new SqlParameters();
    const record = request.record?.(parameters);
    if (record !== undefined) await this.#database?.query(record, parameters.values);
    const { record: _, ...created } = request;
    this.created.push(created);
    const id = systemRandom.uuid();
    this.all.set(
      id,
      queuedRow({
        id,
        server_uuid: request.serverUuid,
        name: request.name,
        params: request.params,
        timeout_ms: request.timeoutMs ?? 3_600_000,
        idempotent: request.idempotent ?? false,
        ...this.outcome,
      }),
    );
    this.ids.push(id);
    return { id, created: true };
  }

  async get(id: string): Promise<TaskRow> {
    const task = this.all.get(id);
    if (task === undefined) throw new TaskNotFoundError(id);
    return task;
  }

  async wait(
    id: string,
    { timeoutMs, signal, endSignal }: { timeoutMs: number; signal?: AbortSignal; endSignal?: AbortSignal },
  ): Promise<TaskRow> {
    const task = await this.get(id);
    this.waited.push(timeoutMs);
    this.waiting++;
    try {
      const end = Date.now() + timeoutMs;
      for (; task.outcome === null && Date.now() < end && endSignal?.aborted !== true; await sleep(5))
        signal?.throwIfAborted();
    } catch (error) {
      this.abandoned++;
      throw error;
    } finally {
      this.waiting--;
    }
    return task;
  }

  async cancel(id: string): Promise<TaskRow> {
    const task = await this.get(id);
    if (task.outcome !== null) throw new TaskEndedError(id, task.outcome);
    task.cancel_requested_at = new Date();
    return task;
  }

  async *follow(
    id: string,
    afterSeq: number,
    { signal, endSignal }: FollowOptions = {},
  ): AsyncGenerator<RecordedTaskEvent> {
    for (let next = afterSeq; ; ) {
      const event = this.events.find(({ seq }) => seq > next);
      signal?.throwIfAborted();
      if (event === undefined) {
        if (this.all.get(id)?.outcome !== null || endSignal?.aborted) return;
        await sleep(5);
        continue;
      }
      next = event.seq;
      yield event;
      if (event.name === 'end') return;
    }
  }

  history: Tasks['history'] = async () => ({ rows: [], next: undefined });

  /** The filters of all calls to `list`, and the page that it returns. */
  readonly asked: TaskFilter[] = [];
  page: TaskListPage = { rows: [], next: undefined };

  async list(filter: TaskFilter) {
    this.asked.push(filter);
    return this.page;
  }

  stats() {
    return { waits: this.waiting, follows: 0 };
  }
}

/** There are no platforms: test/control/servers/boot tests them on whole instances. */
export const bootWithoutPlatforms = (database: Database) =>
  new Boot({
    buckets: new BucketStore({ database }),
    platforms: { names: async () => [] },
    config: { smtEnabled: true, broker: undefined },
    clock: systemClock,
    log: silentLogger,
  });

const noSuchSchedule = (id: string) => Promise.reject(new PushScheduleNotFoundError(id));
export const noSchedules: Parts['pushSchedules'] = {
  create: () => Promise.reject(new Error('not here')),
  times: async () => [],
  get: noSuchSchedule,
  list: async () => ({ schedules: [], next: undefined }),
  change: noSuchSchedule,
  run: noSuchSchedule,
  pause: noSuchSchedule,
  resume: noSuchSchedule,
  delete: noSuchSchedule,
};

const noSuchWorkflowJob = (id: string) => Promise.reject(new WorkflowJobNotFoundError(id));
/** There is no workflow job: test/control/workflows tests them on whole instances. */
export const noWorkflowJobs: Parts['workflowJobs'] = {
  create: async (_request, id) => id,
  findForVm: async () => undefined,
  get: noSuchWorkflowJob,
  list: async () => [],
  wait: noSuchWorkflowJob,
  cancel: noSuchWorkflowJob,
};

const noSuchJob = (id: string) => Promise.reject(new PushJobNotFoundError(id));
/** There is no push job: test/control/push tests them on whole instances. */
export const noPushJobs: Parts['pushJobs'] = {
  create: () => Promise.reject(new Error('not here')),
  findByIdempotencyKey: async () => undefined,
  serverGroup: async () => undefined,
  get: noSuchJob,
  list: async () => ({ jobs: [], next: undefined }),
  nodes: noSuchJob,
  abort: noSuchJob,
  abortNodes: noSuchJob,
  change: noSuchJob,
  addNodes: noSuchJob,
  delete: noSuchJob,
  followers: { async *nodes() {} },
  nodeStates: async () => [],
};

const noSuchNoderole = () => Promise.reject(new ResourceNotFoundError('There is no such noderole'));

export const noAnnealer: Parts['noderoles'] = {
  bind: noSuchNoderole,
  commit: noSuchNoderole,
  list: async () => [],
  get: noSuchNoderole,
  proposeData: noSuchNoderole,
  propose: noSuchNoderole,
  retry: noSuchNoderole,
  delete: noSuchNoderole,
};

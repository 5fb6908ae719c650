/**
 * What callers do with the world, each operation a story of its own over `SimClient`: tasks that
 * are awaited on any instance, repeated with their key, or cancelled; locks that are awaited, held,
 * renewed and released, or left by a holder that dies. The answers are recorded, and a
 * contradiction is a violation.
 */
import { DeploymentStory } from './deployment-story.ts';
import type { Operation } from './plan.ts';
import { TICKET_TIMEOUT_MS } from './push.ts';
import { runReboot } from './reboot-story.ts';
import { type Answer, type Request, SimClient } from './sim-client.ts';
import { EPOCH_MS } from './sim-process.ts';
import { PHASE } from './virtual-time.ts';
import type { World } from './world.ts';

type TaskOperation = Extract<Operation, { kind: 'task' }>;
type LockOperation = Extract<Operation, { kind: 'lock' }>;
type DutyOperation = Extract<Operation, { kind: 'duty' }>;
type PushOperation = Extract<Operation, { kind: 'push' }>;
type VmOperation = Extract<Operation, { kind: 'vm' }>;

/** A task that was answered with 2xx. */
export interface AcceptedTask {
  id: string;
  operation: string;
  idempotent: boolean;
  /** The end that an answer reported. */
  end: { status: string; instance: string } | undefined;
}

/** The time during which a caller believed it held a lock. */
export interface Hold {
  queue: string;
  ticket: string;
  from: number;
  until: number;
}

const WAIT_S = 20;
/** A caller's timeout; a wait without an answer long after it is lost. */
const PATIENCE_MS = 40_000;

export class Workload {
  readonly accepted = new Map<string, AcceptedTask>();
  readonly tickets = new Set<string>();
  readonly holds: Hold[] = [];
  readonly #world: World;
  readonly #duties = new Map<string, DutyOperation>();
  readonly #done = { cancels: 0, renewals: 0, aborts: 0, pushChanges: 0 };
  readonly #unfinished = new Map<number, Operation>();

  constructor(world: World) {
    this.#world = world;
  }

  get counts(): Record<
    'tasks' | 'cancels' | 'tickets' | 'holds' | 'renewals' | 'duties' | 'aborts' | 'pushChanges',
    number
  > {
    const { size: tasks } = this.accepted;
    const { size: duties } = this.#duties;
    return { tasks, tickets: this.tickets.size, holds: this.holds.length, duties, ...this.#done };
  }

  /** Operations whose story is not over. */
  get unfinished(): Operation[] {
    return [...this.#unfinished.values()];
  }

  /** Undefined: of another kind than the workload's own. */
  dutyOf(id: string): DutyOperation | undefined {
    return this.#duties.get(id);
  }

  schedule(operations: readonly Operation[]): void {
    for (const operation of operations) {
      this.#unfinished.set(operation.number, operation);
      this.#world.time.schedule(operation.at, PHASE.input, () => void this.#carryOut(operation));
    }
  }

  async #carryOut(operation: Operation): Promise<void> {
    const client = new SimClient(this.#world, `client-${operation.number}`);
    try {
      if (operation.kind === 'task') await this.#runTask(client, operation);
      else if (operation.kind === 'lock') await this.#takeLock(client, operation);
      else if (operation.kind === 'burst') await this.#runBurst(client, operation);
      else if (operation.kind === 'duty') await this.#runDuty(client, operation);
      else if (operation.kind === 'push') await this.#runPush(client, operation);
      else if (operation.kind === 'vm') await this.#runVm(client, operation);
      else if (operation.kind === 'reboot') await runReboot(this.#world, client, operation);
      else if (operation.kind === 'deployment') await new DeploymentStory(this.#world, client, operation).run();
      else await this.#runUnderLock(client, operation);
      this.#unfinished.delete(operation.number);
    } catch (error) {
      this.#world.crashed(`client-${operation.number}`, error);
    }
  }

  async #runTask(client: SimClient, operation: TaskOperation): Promise<void> {
    const { agent, workMs, paramsBytes, exitCode, timeoutMs, idempotent, number } = operation;
    const name = `op-${number}`;
    const params = {
      server_uuid: this.#world.agents[agent]?.uuid,
      task: 'command_execute',
      params: { script: `work ${name} ${workMs} ${exitCode}`, env: { WIDE: 'x'.repeat(paramsBytes) } },
      timeout_ms: timeoutMs,
      idempotent,
    };
    const id = await this.#create(client, { params, key: operation.key ? name : undefined, name, idempotent });
    if (id === undefined) return;
    const waits = Array.from({ length: operation.waits }, () => this.#waitForEnd(client, id));
    if (operation.cancelAfterMs !== undefined) {
      await client.sleep(operation.cancelAfterMs);
      const { status } = await client.insist({ route: 'CancelTask', params: { taskid: id } });
      if (status === 202) this.#done.cancels += 1;
    }
    await Promise.all(waits);
  }

  /** All at once, for one server. */
  async #runBurst(client: SimClient, operation: Extract<Operation, { kind: 'burst' }>): Promise<void> {
    const server_uuid = this.#world.agents[operation.agent]?.uuid;
    const tasks = Array.from({ length: operation.tasks }, async (_, index) => {
      const name = `op-${operation.number}.${index}`;
      const script = `work ${name} ${operation.workMs} 0`;
      const params = { server_uuid, task: 'command_execute', params: { script }, timeout_ms: 60_000 };
      const id = await this.#create(client, { params, key: name, name, idempotent: false });
      if (id !== undefined) await this.#waitForEnd(client, id);
    });
    await Promise.all(tasks);
  }

  /**
   * Creates a task. A request with a key is repeated until it is answered. Without a key, nobody
   * knows after a lost answer whether the task was accepted.
   */
  async #create(
    client: SimClient,
    {
      params,
      key,
      name,
      idempotent,
    }: { params: Record<string, unknown>; key: string | undefined; name: string; idempotent: boolean },
  ): Promise<string | undefined> {
    const headers = key === undefined ? {} : { 'Idempotency-Key': key };
    const ids = new Set<string>();
    for (let tries = 0; tries < 40; tries++) {
      const answer = await client.ask({ route: 'CreateTask', params, headers });
      if (answer.status === 202) {
        const id = String(answer.body.id);
        ids.add(id);
        if (ids.size > 1) this.#world.violated('I3', `${name}: two tasks under one key: ${[...ids].join(', ')}`);
        this.accepted.set(id, { id, operation: name, idempotent, end: undefined });
        // The same request once more must give the same task.
        if (key === undefined || tries > 0 || !client.random.chance(0.5)) return id;
      } else if (key === undefined && (answer.status === 'lost' || answer.status === 503)) return undefined;
      await client.sleep(client.random.between(100, 2000));
    }
    return [...ids][0];
  }

  async #waitForEnd(client: SimClient, id: string): Promise<void> {
    for (;;) {
      const since = this.#world.time.now;
      const params = { taskid: id, timeout: WAIT_S };
      const answer = await client.ask({ route: 'WaitTask', params, patienceMs: PATIENCE_MS });
      const causeAt = this.#world.checks.tasks.endedAt(id);
      this.#noteWait({ what: `task ${id}`, since, answer, causeAt });
      if (answer.status === 404) return this.#world.violated('I6', `task ${id} was accepted and is not known any more`);
      if (answer.status === 200 && answer.body.status !== 'active') return this.#noteEnd(id, answer);
      if (answer.status !== 200) await client.sleep(client.random.between(100, 1000));
    }
  }

  #noteWait(wait: { what: string; since: number; answer: Answer; causeAt: number | undefined }): void {
    const { what, since, answer, causeAt } = wait;
    if (answer.status === 503) return;
    const isTimeout = answer.status === 408 || (answer.status === 200 && answer.body.status === 'active');
    const how = answer.status === 'lost' ? 'lost' : isTimeout ? 'timeout' : 'event';
    this.#world.checks.waited({ what, since, timeoutMs: WAIT_S * 1000, answer: how, causeAt });
  }

  #noteEnd(id: string, { body, instance }: Exclude<Answer, { status: 'lost' }>): void {
    const task = this.accepted.get(id);
    const status = String(body.status);
    if (task?.end !== undefined && task.end.status !== status)
      this.#world.violated(
        'I3',
        `task ${id} was ${task.end.status} at ${task.end.instance} and is ${status} at ${instance}`,
      );
    if (task !== undefined) task.end ??= { status, instance };
  }

  async #takeLock(client: SimClient, operation: LockOperation): Promise<void> {
    const queue = { server_uuid: 'default', scope: 'sim', id: `q${operation.queue}` };
    const created = await client.ask({ route: 'CreateTicket', params: { ...queue, expires_in: operation.expiresInS } });
    if (created.status !== 202) return;
    const ticket = String(created.body.uuid);
    this.tickets.add(ticket);
    if (!(await this.#waitForLock(client, ticket))) return;
    const from = this.#world.time.now;
    await client.sleep(operation.holdMs);
    let until = await this.#expiryOf(client, ticket);
    if (operation.holder === 'renews') {
      const answer = await client.ask({
        route: 'RenewTicket',
        params: { ticket_uuid: ticket, expires_in: operation.expiresInS },
      });
      if (answer.status === 200) {
        until = wallMs(answer.body.expires_at);
        this.#done.renewals += 1;
      }
      await client.sleep(operation.holdMs);
    }
    const leavesAt = operation.holder === 'dies' ? Number.POSITIVE_INFINITY : this.#world.time.now;
    if (until !== undefined) this.holds.push({ queue: queue.id, ticket, from, until: Math.min(until, leavesAt) });
    if (operation.holder === 'dies') return;
    const route = operation.holder === 'deletes' ? 'DeleteTicket' : 'ReleaseTicket';
    await client.insist({ route, params: { ticket_uuid: ticket } });
  }

  /** Created on any instance, with its id as the key of the request. */
  async #runDuty(client: SimClient, operation: DutyOperation): Promise<void> {
    const id = client.random.uuid();
    this.#duties.set(id, operation);
    const { checks, instances } = this.#world;
    while (!checks.duties.has(id)) {
      client.random.pick(instances).createDuty(id);
      await client.sleep(client.random.between(200, 2_000));
    }
  }

  /** Each of the servers is asked for the VM; then the first one is asked for the steps. */
  async #runVm(client: SimClient, { agent, rival, steps }: VmOperation): Promise<void> {
    const servers = [agent, ...(rival === undefined ? [] : [rival])].map((number) => this.#world.agents[number]?.uuid);
    const [uuid, image_uuid] = [client.random.uuid(), client.random.uuid()];
    const asked = servers.map((server_uuid) =>
      this.#endTask(client, { route: 'CreateVm', params: { server_uuid, uuid, image_uuid } }),
    );
    const params = { server_uuid: servers[0], vm_uuid: uuid };
    const acts = steps.map(async ({ afterMs, how }, index) => {
      await client.sleep(afterMs * (index + 1));
      await this.#endTask(client, { route: VM_ROUTES[how], params });
    });
    await Promise.all([...asked, ...acts]);
  }

  /**
   * Until it is accepted, and its task has ended. A refusal with 409 may be of a server that is
   * away.
   */
  async #endTask(client: SimClient, request: Request): Promise<void> {
    for (let tries = 0; tries < 20; tries++) {
      const answer = await client.ask(request);
      if (answer.status === 200) {
        const id = String(answer.body.id);
        this.accepted.set(id, { id, operation: '', idempotent: false, end: undefined });
        return this.#waitForEnd(client, id);
      }
      if (answer.status !== 'lost' && answer.body.code === 'VmExists') return;
      await client.sleep(client.random.between(100, 1_000));
    }
  }

  /** Created on any instance until it exists; then aborted, if that is planned. */
  async #runPush(client: SimClient, operation: PushOperation): Promise<void> {
    const id = client.random.uuid();
    const { checks, instances, agents } = this.#world;
    const { quorum, workMs, exitCodes, concurrency, maxFailures, votingTimeoutMs, runTimeoutMs, abortTimeoutMs } =
      operation;
    const nodes = operation.agents.flatMap((number) => {
      const agent = agents[number];
      return agent === undefined ? [] : [{ serverUuid: agent.uuid, name: agent.name }];
    });
    const times = { votingTimeoutMs, runTimeoutMs, abortTimeoutMs };
    const command = `work op-${operation.number} ${workMs.join()} ${exitCodes.join()}`;
    while (!checks.push.has(id)) {
      client.random.pick(instances).createPushJob({
        id,
        command,
        nodes,
        quorum: Math.min(quorum, nodes.length),
        concurrency,
        maxFailures,
        ticket: ticketOf(operation.ticketQueue),
        ...times,
      });
      await client.sleep(client.random.between(200, 2_000));
    }
    await Promise.all([this.#changePush(client, id, operation.changes), this.#abortPush(client, id, operation.aborts)]);
  }

  /** A change that comes too late is refused, and so is one that names what does not fit. */
  async #changePush(client: SimClient, id: string, changes: PushOperation['changes']): Promise<void> {
    for (const change of changes) {
      await client.sleep(change.afterMs);
      const { status } = await client.insist(this.#requestOf(id, change));
      if (status < 300) this.#done.pushChanges += 1;
    }
  }

  #requestOf(id: string, change: PushOperation['changes'][number]): Request {
    if (change.kind === 'limits') return { route: 'ChangePushJob', params: { id, ...change.body } };
    const servers = change.agents.flatMap((agent) => this.#world.agents[agent]?.uuid ?? []);
    if (change.kind === 'add') return { route: 'AddPushNodes', params: { id, servers } };
    return { route: 'AbortPushJob', params: { id, nodes: servers, soft: change.how === 'soft' } };
  }

  async #abortPush(client: SimClient, id: string, aborts: PushOperation['aborts']): Promise<void> {
    for (const { afterMs, how } of aborts) {
      await client.sleep(afterMs);
      const { status } = await client.insist({ route: 'AbortPushJob', params: { id, soft: how === 'soft' } });
      if (status === 202) this.#done.aborts += 1;
    }
  }

  /** True when it is this ticket's turn; a caller that gets no answer asks another instance. */
  async #waitForLock(client: SimClient, ticket: string): Promise<boolean> {
    for (;;) {
      const since = this.#world.time.now;
      const params = { ticket_uuid: ticket, timeout: WAIT_S };
      const answer = await client.ask({ route: 'WaitTicket', params, patienceMs: PATIENCE_MS });
      const causeAt = answer.status === 408 ? undefined : this.#world.checks.tickets.movedAt(ticket);
      this.#noteWait({ what: `ticket ${ticket}`, since, answer, causeAt });
      if (answer.status === 204) return true;
      if (answer.status === 404) this.#world.violated('I6', `ticket ${ticket} was accepted and is not known any more`);
      if (answer.status !== 'lost' && answer.status !== 408 && answer.status !== 503) return false;
      await client.sleep(client.random.between(50, 1000));
    }
  }

  /**
   * When the ticket expires by the database's clock, which the holder may use here. Undefined when
   * it no longer holds the ticket.
   */
  async #expiryOf(client: SimClient, ticket: string): Promise<number | undefined> {
    const answer = await client.insist({ route: 'GetTicket', params: { ticket_uuid: ticket } });
    return answer.body.status === 'active' ? wallMs(answer.body.expires_at) : undefined;
  }

  async #runUnderLock(client: SimClient, operation: Extract<Operation, { kind: 'task-under-lock' }>): Promise<void> {
    const server = this.#world.agents[operation.agent]?.uuid;
    const queue = { server_uuid: server, scope: 'vm', id: 'one' };
    const created = await client.ask({ route: 'CreateTicket', params: { ...queue, expires_in: 8 } });
    if (created.status !== 202) return;
    const ticket = String(created.body.uuid);
    this.tickets.add(ticket);
    if (!(await this.#waitForLock(client, ticket))) return;
    const name = `op-${operation.number}`;
    const params = { script: `work ${name} ${operation.workMs} 0` };
    const request = { server_uuid: server, task: 'command_execute', params, ticket_uuid: ticket, timeout_ms: 8_000 };
    const answer = await client.ask({ route: 'CreateTask', params: request });
    if (answer.status === 202) {
      const id = String(answer.body.id);
      this.accepted.set(id, { id, operation: name, idempotent: false, end: undefined });
      await this.#waitForEnd(client, id);
    }
    await client.insist({ route: 'ReleaseTicket', params: { ticket_uuid: ticket } });
  }
}

const VM_ROUTES = { stop: 'StopVm', start: 'StartVm', delete: 'DeleteVm' } as const;

const ticketOf = (queue: number | undefined) =>
  queue === undefined
    ? undefined
    : { serverUuid: 'default', scope: 'push', id: `q${queue}`, expiresInSeconds: 12, timeoutMs: TICKET_TIMEOUT_MS };

const wallMs = (text: unknown): number => Date.parse(String(text)) - EPOCH_MS;

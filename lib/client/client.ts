/**
 * The REST API as functions. Each asks whichever instance answers (failover-client.ts) and returns
 * the checked answer. They throw ApiError for an error answer, NoAnswerError when no instance
 * answered, and UnexpectedAnswerError.
 */
import { z } from 'zod';
import { auditContracts } from '../protocol/api/audit.ts';
import type { Contract } from '../protocol/api/contract/contract.ts';
import { EVENT_KINDS, eventContracts, type FleetEvent } from '../protocol/api/events.ts';
import { type Instance, instanceContracts } from '../protocol/api/instances.ts';
import { processContracts } from '../protocol/api/process.ts';
import type { PushJob } from '../protocol/api/push/job-schemas.ts';
import { pushJobContracts } from '../protocol/api/push/jobs.ts';
import { pushScheduleContracts } from '../protocol/api/push/schedules.ts';
import { serverTaskContracts } from '../protocol/api/server-tasks.ts';
import { type NamedServer, namedServer, serverContracts } from '../protocol/api/servers.ts';
import {
  type ListedTask,
  TASK_EVENTS,
  type Task,
  type TaskEvent,
  type TaskPage,
  taskContracts,
} from '../protocol/api/tasks.ts';
import { type CreatedTicket, type Queue, type Ticket, ticketContracts } from '../protocol/api/tickets.ts';
import { type CreatedToken, type Token, tokenContracts } from '../protocol/api/tokens.ts';
import { type Address, parseAddress } from './address.ts';
import { ApiError } from './client-errors.ts';
import { type Call, FailoverClient, type FailoverClientDeps } from './failover-client.ts';
import { follow } from './follow.ts';
import { allByOffset, fullPages, pages } from './pages.ts';
import { type BodyOf, bodySchemaOf, buildRequest, isKnown, type Params } from './request.ts';
import type { ReceivedEvent } from './server-sent.ts';

/** The filters of a list. */
type ServerQuery = Params<typeof serverContracts.ListServers>;
export type TaskQuery = Params<typeof taskContracts.ListTasks>;

export interface TaskOptions {
  serverUuid: string;
  task: string;
  params?: Record<string, unknown>;
  timeoutMs?: number | undefined;
  ticketUuid?: string | undefined;
  /** Makes it safe to request the task again when the answer was lost. */
  idempotencyKey: string;
}

export interface TicketOptions {
  /** The uuid of a server, or `default`. */
  serverUuid: string;
  scope: string;
  id: string;
  action?: string | undefined;
  expiresInSeconds: number;
  /**
   * Finds the ticket when the answer was lost, also at instances that do not know idempotency keys.
   */
  requestId: string;
  /** Allows the request to be repeated when its answer was lost. */
  idempotencyKey?: string | undefined;
}

/** Selects some of a server's open tickets; an absent field matches any value. */
interface OpenTickets {
  scope?: string;
  id?: string;
  reqid?: string;
}

/** Limits on the duration of a call. */
export type CallLimits = Pick<Call, 'signal' | 'withinMs' | 'patienceMs'>;

interface StreamOptions {
  after?: string | undefined;
  onBroken?: (reason: string) => void;
  onOpen?: () => void;
}

export class CnapiClient {
  readonly http: FailoverClient;
  readonly #secure: boolean;

  constructor(deps: FailoverClientDeps) {
    this.http = new FailoverClient(deps);
    this.#secure =
      'urls' in deps.discovery ? deps.discovery.urls.some((url) => url.startsWith('https:')) : deps.secure === true;
  }

  close(): void {
    this.http.close();
  }

  async info(): Promise<{ version: string; address: string }> {
    const { GetInfo } = processContracts;
    const answer = await this.http.call(buildRequest(GetInfo, {}));
    return { ...bodySchemaOf(GetInfo).parse(JSON.parse(answer.text)), address: answer.address };
  }

  /** Returns one page. Each server has its uuid: `fields` must name it. */
  servers(query: ServerQuery = {}): Promise<NamedServer[]> {
    return this.http.json(buildRequest(serverContracts.ListServers, query), z.array(namedServer));
  }

  /**
   * Yields all servers, page by page, in order of uuid. Not by offset: when a server of an earlier
   * page is removed, the rest moves up and one would be skipped.
   */
  allServers(query: ServerQuery = {}): AsyncGenerator<NamedServer> {
    return fullPages(
      (page) => this.servers({ ...query, ...page }),
      ({ uuid }) => uuid,
    );
  }

  server(uuid: string) {
    return this.ask(serverContracts.GetServer, { server_uuid: uuid });
  }

  statusHistory(uuid: string, limit: number) {
    return this.ask(serverContracts.GetStatusHistory, { server_uuid: uuid, limit });
  }

  taskHistory(uuid: string, limit: number) {
    return this.ask(serverTaskContracts.TaskHistory, { server_uuid: uuid, limit });
  }

  /**
   * Returns one page of the tasks of all servers, newest first. A page may have fewer tasks than
   * `limit` and still not be the last.
   */
  tasks(query: TaskQuery = {}): Promise<TaskPage> {
    return this.ask(taskContracts.ListTasks, query);
  }

  /** Returns the first `count` tasks, from as many pages as needed. `isMore`: there are others. */
  async firstTasks(query: TaskQuery, count: number): Promise<{ tasks: ListedTask[]; isMore: boolean }> {
    let isMore = false;
    const found = pages(async (page) => {
      const { tasks, next } = await this.tasks({ ...query, ...page });
      isMore = next !== undefined;
      return { items: tasks, next };
    }, count);
    return { tasks: await Array.fromAsync(found), isMore };
  }

  /** Returns the task's id. */
  async createTask({ serverUuid, task, params, timeoutMs, ticketUuid, idempotencyKey }: TaskOptions): Promise<string> {
    const request = { server_uuid: serverUuid, task, params, timeout_ms: timeoutMs, ticket_uuid: ticketUuid };
    return (await this.ask(serverTaskContracts.CreateTask, request, repeatableBy(idempotencyKey))).id;
  }

  /** Repeats the request if its answer was lost: the key finds the job that it created. */
  createPushJob(request: Params<typeof pushJobContracts.CreatePushJob>, idempotencyKey: string): Promise<PushJob> {
    return this.ask(pushJobContracts.CreatePushJob, request, repeatableBy(idempotencyKey));
  }

  runSchedule(id: string, idempotencyKey: string): Promise<PushJob> {
    return this.ask(pushScheduleContracts.RunPushSchedule, { id }, repeatableBy(idempotencyKey));
  }

  task(id: string): Promise<Task> {
    return this.ask(taskContracts.GetTask, { taskid: id });
  }

  /**
   * Also succeeds when the answer was lost and the repeated request is refused because the first
   * one ended the task.
   */
  async cancelTask(id: string): Promise<Task> {
    try {
      return await this.ask(taskContracts.CancelTask, { taskid: id }, { repeatable: true });
    } catch (error) {
      if (!(error instanceof ApiError && error.mayBeDone && error.code === 'TaskEnded')) throw error;
      const task = await this.task(id);
      if (!task.cancel_requested) throw error;
      return task;
    }
  }

  async *followTask(id: string, options: StreamOptions = {}): AsyncGenerator<TaskEvent> {
    const { FollowTask } = taskContracts;
    const { path } = buildRequest(FollowTask, { taskid: id });
    for await (const sent of follow(this.http, { path, ...options })) {
      const data = JSON.parse(sent.data);
      if (!isKnown(TASK_EVENTS, data.name)) continue;
      const event = bodySchemaOf(FollowTask).shape.data.parse(data);
      yield event;
      if (event.name === 'end') return;
    }
  }

  async *events(
    query: Params<typeof eventContracts.FollowEvents>,
    options: StreamOptions = {},
  ): AsyncGenerator<FleetEvent> {
    const { FollowEvents } = eventContracts;
    const { path } = buildRequest(FollowEvents, query);
    for await (const event of follow(this.http, { path, ...options })) {
      const sent = { id: event.id, event: event.name, data: dataOf(event) };
      const parsed = bodySchemaOf(FollowEvents).safeParse(sent);
      if (parsed.success) yield parsed.data;
      else if (isKnown([...EVENT_KINDS, 'gap'], event.name)) throw parsed.error;
    }
  }

  /**
   * Not repeated automatically: instances of earlier versions ignore the key, and a create whose
   * answer was lost may already have added a ticket there. Look for it by its `reqid` before you
   * repeat the request.
   */
  createTicket(request: TicketOptions, limits: CallLimits = {}): Promise<CreatedTicket> {
    const { serverUuid, scope, id, action, expiresInSeconds: expires_in, requestId, idempotencyKey } = request;
    const key = idempotencyKey === undefined ? {} : { 'idempotency-key': idempotencyKey };
    const headers = { 'x-request-id': requestId, ...key };
    const params = { server_uuid: serverUuid, scope, id, action, expires_in };
    return this.ask(ticketContracts.CreateTicket, params, { headers, ...limits });
  }

  /** Returns all of a server's tickets, by creation, of every status. There may be very many. */
  tickets(serverUuid: string, limits: CallLimits = {}): Promise<Ticket[]> {
    return this.#ticketPages(serverUuid, {}, limits);
  }

  /**
   * Returns the active and queued tickets. Instances of earlier versions cannot filter; from those
   * all tickets are read and filtered here.
   */
  async openTickets(serverUuid: string, wanted: OpenTickets = {}, limits: CallLimits = {}): Promise<Ticket[]> {
    const isWanted = ({ status, ...ticket }: Ticket) =>
      (status === 'active' || status === 'queued') &&
      (['scope', 'id', 'reqid'] as const).every((key) => wanted[key] === undefined || ticket[key] === wanted[key]);
    const found = await this.#ticketPages(serverUuid, { open: true, ...wanted }, limits).catch((error: unknown) => {
      if (!(error instanceof ApiError && error.code === 'InvalidArgument')) throw error;
      return this.tickets(serverUuid, limits);
    });
    return found.filter(isWanted);
  }

  /**
   * Returns the first tickets of a queue: its holder and those that wait.
   * @throws ApiError InvalidArgument from an instance of an earlier version
   */
  queueHead(
    { serverUuid, scope, id }: Pick<TicketOptions, 'serverUuid' | 'scope' | 'id'>,
    limit: number,
    limits: CallLimits,
  ): Promise<Ticket[]> {
    const { ListTickets } = ticketContracts;
    return this.ask(ListTickets, { server_uuid: serverUuid, open: true, scope, id, limit }, limits);
  }

  #ticketPages(serverUuid: string, query: OpenTickets & { open?: boolean }, limits: CallLimits): Promise<Ticket[]> {
    const params = { server_uuid: serverUuid, ...query };
    return allByOffset((page) => this.ask(ticketContracts.ListTickets, { ...params, ...page }, limits));
  }

  ticket(uuid: string, limits: CallLimits = {}): Promise<Ticket> {
    return this.ask(ticketContracts.GetTicket, { ticket_uuid: uuid }, limits);
  }

  /**
   * `active`: the ticket holds its lock. `queued`: not active in that time.
   * @throws ApiError when it can no longer become active
   */
  async waitTicket(uuid: string, seconds: number, signal?: AbortSignal): Promise<'active' | 'queued'> {
    const request = buildRequest(ticketContracts.WaitTicket, { ticket_uuid: uuid, timeout: seconds });
    const withinMs = (seconds + 15) * 1000;
    try {
      await this.http.call({ ...request, withinMs, patienceMs: 0, ownConnection: true, signal });
      return 'active';
    } catch (error) {
      if (error instanceof ApiError && error.statusCode === 408) return 'queued';
      throw error;
    }
  }

  renewTicket(uuid: string, seconds: number, limits: CallLimits = {}): Promise<Ticket> {
    const params = { ticket_uuid: uuid, expires_in: seconds };
    return this.ask(ticketContracts.RenewTicket, params, { repeatable: true, ...limits });
  }

  async releaseTicket(uuid: string, limits: CallLimits = {}): Promise<void> {
    await this.http.call({ ...buildRequest(ticketContracts.ReleaseTicket, { ticket_uuid: uuid }), ...limits });
  }

  deleteTicket(uuid: string, limits: CallLimits = {}): Promise<void> {
    return this.delete(ticketContracts.DeleteTicket, { ticket_uuid: uuid }, limits);
  }

  queues(): Promise<Queue[]> {
    return allByOffset((page) => this.ask(ticketContracts.ListQueues, page));
  }

  instances(): Promise<Instance[]> {
    return this.ask(instanceContracts.ListInstances, {});
  }

  /** Asks for the live instances, so that others are known when a named one leaves. */
  async learnInstances(): Promise<Instance[]> {
    const instances = await this.instances();
    const urls = instances.filter(({ state }) => state === 'live').map(({ url }) => url);
    this.http.learn(urls.flatMap((url) => this.#sameKind(url)));
    return instances;
  }

  drain(uuid: string): Promise<Instance> {
    return this.ask(instanceContracts.DrainInstance, { uuid }, { repeatable: true });
  }

  audit(query: Params<typeof auditContracts.ListAudit>) {
    return this.ask(auditContracts.ListAudit, query);
  }

  /** Returns one page. */
  tokens(query: Params<typeof tokenContracts.ListTokens> = {}): Promise<Token[]> {
    return this.ask(tokenContracts.ListTokens, query);
  }

  /** Yields all tokens, page by page, newest first. */
  allTokens(query: Params<typeof tokenContracts.ListTokens> = {}): AsyncGenerator<Token> {
    return fullPages(
      (page) => this.tokens({ ...query, ...page }),
      ({ uuid }) => uuid,
    );
  }

  createToken(request: Params<typeof tokenContracts.CreateToken>): Promise<CreatedToken> {
    return this.ask(tokenContracts.CreateToken, request);
  }

  async revokeToken(uuid: string): Promise<void> {
    await this.http.call(buildRequest(tokenContracts.RevokeToken, { uuid }));
  }

  /** Sends a request of a noun of the bucket store that is answered with a body. */
  async documents(contract: Contract, params: Record<string, unknown>): Promise<Record<string, unknown>> {
    return (await this.ask(contract, params)) as Record<string, unknown>;
  }

  /**
   * Deletes what the parameters name. Also succeeds when an attempt may have deleted it
   * (`mayBeDone`) and the repeated request finds nothing. Only for objects that no longer exist
   * after it: a revoked token does.
   */
  async delete<One extends Contract>(contract: One, params: Params<One>, limits: CallLimits = {}): Promise<void> {
    await this.http.call({ ...buildRequest(contract, params), ...limits }).catch((error: unknown) => {
      if (!(error instanceof ApiError && error.mayBeDone && error.statusCode === 404)) throw error;
    });
  }

  /** Returns the body of the answer, checked against the contract. */
  ask<One extends Contract>(
    contract: One,
    params: Params<One>,
    options: Omit<Call, 'method' | 'path' | 'body'> = {},
  ): Promise<BodyOf<One>> {
    return this.http.json({ ...buildRequest(contract, params), ...options }, bodySchemaOf(contract));
  }

  /**
   * Never send a token that goes over TLS to an address without TLS, even if an instance lists that
   * address.
   */
  #sameKind(url: string): Address[] {
    try {
      const address = parseAddress(url);
      return address.secure === this.#secure ? [address] : [];
    } catch {
      return [];
    }
  }
}

const repeatableBy = (key: string) => ({ headers: { 'idempotency-key': key }, repeatable: true });

function dataOf({ data }: ReceivedEvent): unknown {
  return data === '' ? {} : JSON.parse(data);
}

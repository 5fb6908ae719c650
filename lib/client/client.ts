/**
 * The REST API as functions. Each asks whichever instance answers (caller.ts) and returns the
 * checked answer. They throw ApiError for an error answer, NoAnswerError when no instance answered,
 * and UnexpectedAnswerError.
 */
import { z } from 'zod';
import { type Address, parseAddress } from './address.ts';
import {
  auditAnswer,
  type CreatedTicket,
  type CreatedToken,
  createdTicketAnswer,
  createdTokenAnswer,
  fleetEventAnswer,
  type Instance,
  idAnswer,
  infoAnswer,
  instanceAnswer,
  type ListedTask,
  type Queue,
  queueAnswer,
  type Server,
  serverAnswer,
  statusChangeAnswer,
  type Task,
  type TaskEvent,
  type TaskPage,
  type Ticket,
  type Token,
  taskAnswer,
  taskEventAnswer,
  taskHistoryAnswer,
  taskPageAnswer,
  ticketAnswer,
  tokenAnswer,
} from './answers.ts';
import { type Call, Caller, type CallerDeps } from './caller.ts';
import { ApiError } from './client-errors.ts';
import { follow } from './follow.ts';
import type { ServerSentEvent } from './server-sent.ts';

export type Query = Record<string, string | number | boolean | readonly string[] | undefined>;

export interface TaskRequest {
  serverUuid: string;
  task: string;
  params?: Record<string, unknown>;
  timeoutMs?: number | undefined;
  ticketUuid?: string | undefined;
  /** Makes it safe to request the task again when the answer was lost. */
  idempotencyKey: string;
}

export interface TicketRequest {
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
  /** With it, the request can be repeated when its answer was lost. */
  idempotencyKey?: string | undefined;
}

/** Selects some of a server's open tickets; an absent field matches any value. */
interface OpenTickets {
  scope?: string;
  id?: string;
  reqid?: string;
}

/** Limits on the duration of a call. */
export type Limits = Pick<Call, 'signal' | 'withinMs' | 'patienceMs'>;

export interface FollowOptions {
  after?: string | undefined;
  signal?: AbortSignal | undefined;
  onBroken?: (why: string) => void;
  onOpen?: () => void;
}

export interface FleetEvent {
  id: string | undefined;
  event: string;
  data: z.output<typeof fleetEventAnswer>;
}

const PAGE = 1000;

export class CnapiClient {
  readonly caller: Caller;
  readonly #secure: boolean;

  constructor(deps: CallerDeps) {
    this.caller = new Caller(deps);
    this.#secure =
      'urls' in deps.place ? deps.place.urls.some((url) => url.startsWith('https:')) : deps.secure === true;
  }

  close(): void {
    this.caller.close();
  }

  async info(signal?: AbortSignal): Promise<{ version: string; address: string }> {
    const answer = await this.caller.call({ method: 'GET', path: '/info', ...(signal && { signal }) });
    return { ...infoAnswer.parse(JSON.parse(answer.text)), address: answer.address };
  }

  /** Returns one page. */
  servers(query: Query = {}, signal?: AbortSignal): Promise<Server[]> {
    const path = `/servers${queryOf(query)}`;
    return this.caller.json({ method: 'GET', path, ...(signal && { signal }) }, z.array(serverAnswer));
  }

  /**
   * Yields all servers, page by page, in order of uuid. Not by offset: when a server of an earlier
   * page is removed, the rest moves up and one would be skipped.
   */
  async *allServers(query: Query = {}): AsyncGenerator<Server> {
    for (let after: string | undefined; ; ) {
      const page = await this.servers({ ...query, limit: PAGE, ...(after !== undefined && { after }) });
      yield* page;
      if (page.length < PAGE) return;
      after = page.at(-1)?.uuid;
    }
  }

  server(uuid: string): Promise<Server> {
    return this.caller.json({ method: 'GET', path: `/servers/${segment(uuid)}` }, serverAnswer);
  }

  statusHistory(uuid: string, limit: number) {
    const path = `/servers/${segment(uuid)}/status-history?limit=${limit}`;
    return this.caller.json({ method: 'GET', path }, z.array(statusChangeAnswer));
  }

  taskHistory(uuid: string, limit: number) {
    const path = `/servers/${segment(uuid)}/task-history?limit=${limit}`;
    return this.caller.json({ method: 'GET', path }, z.array(taskHistoryAnswer));
  }

  /**
   * Returns one page of the tasks of all servers, newest first. A page may have fewer tasks than
   * `limit` and still not be the last.
   */
  tasks(query: Query = {}, signal?: AbortSignal): Promise<TaskPage> {
    const path = `/tasks${queryOf(query)}`;
    return this.caller.json({ method: 'GET', path, ...(signal && { signal }) }, taskPageAnswer);
  }

  /** Returns the first `count` tasks, from as many pages as needed. `isMore`: there are others. */
  async firstTasks(query: Query, count: number): Promise<{ tasks: ListedTask[]; isMore: boolean }> {
    const tasks: ListedTask[] = [];
    for (let after: string | undefined; ; ) {
      const page = await this.tasks({ ...query, limit: Math.min(PAGE, count - tasks.length), after });
      tasks.push(...page.tasks);
      after = page.next;
      if (after === undefined || tasks.length >= count) return { tasks, isMore: after !== undefined };
    }
  }

  /** Returns the task's id. */
  async createTask({ serverUuid, task, params, timeoutMs, ticketUuid, idempotencyKey }: TaskRequest): Promise<string> {
    const body = JSON.stringify({ task, params, timeout_ms: timeoutMs, ticket_uuid: ticketUuid });
    const headers = { 'idempotency-key': idempotencyKey };
    const path = `/servers/${segment(serverUuid)}/tasks`;
    return (await this.caller.json({ method: 'POST', path, body, headers, repeatable: true }, idAnswer)).id;
  }

  task(id: string): Promise<Task> {
    return this.caller.json({ method: 'GET', path: `/tasks/${segment(id)}` }, taskAnswer);
  }

  /**
   * Also succeeds when the answer was lost and the repeated request is refused because the first
   * one ended the task.
   */
  async cancelTask(id: string): Promise<Task> {
    const path = `/tasks/${segment(id)}/cancel`;
    try {
      return await this.caller.json({ method: 'POST', path, repeatable: true }, taskAnswer);
    } catch (error) {
      if (!(error instanceof ApiError && error.mayBeDone && error.code === 'TaskEnded')) throw error;
      const task = await this.task(id);
      if (task.cancel_requested !== true) throw error;
      return task;
    }
  }

  async *followTask(id: string, options: FollowOptions = {}): AsyncGenerator<TaskEvent> {
    for await (const event of follow(this.caller, { path: `/tasks/${segment(id)}/events`, ...options })) {
      const parsed = taskEventAnswer.parse(JSON.parse(event.data));
      yield parsed;
      if (parsed.name === 'end') return;
    }
  }

  async *events(query: Query, options: FollowOptions = {}): AsyncGenerator<FleetEvent> {
    for await (const event of follow(this.caller, { path: `/events${queryOf(query)}`, ...options })) {
      yield { id: event.id, event: event.name, data: fleetEventAnswer.parse(dataOf(event)) };
    }
  }

  /**
   * Not repeated automatically: instances of earlier versions ignore the key, and a create whose
   * answer was lost may already have added a ticket there. Look for it by its `reqid` before you
   * repeat the request.
   */
  createTicket(request: TicketRequest, limits: Limits = {}): Promise<CreatedTicket> {
    const { serverUuid, scope, id, action, expiresInSeconds: expires_in, requestId, idempotencyKey } = request;
    const body = JSON.stringify({ scope, id, action, expires_in });
    const path = `/servers/${segment(serverUuid)}/tickets`;
    const key = idempotencyKey === undefined ? {} : { 'idempotency-key': idempotencyKey };
    const headers = { 'x-request-id': requestId, ...key };
    return this.caller.json({ method: 'POST', path, body, headers, ...limits }, createdTicketAnswer);
  }

  /** Returns all of a server's tickets, by creation, of every status. There may be very many. */
  tickets(serverUuid: string, limits: Limits = {}): Promise<Ticket[]> {
    return this.#ticketPages(serverUuid, {}, limits);
  }

  /**
   * Returns the active and queued tickets. Instances of earlier versions cannot filter; from those
   * all tickets are read and filtered here.
   */
  async openTickets(serverUuid: string, wanted: OpenTickets = {}, limits: Limits = {}): Promise<Ticket[]> {
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
    { serverUuid, scope, id }: Pick<TicketRequest, 'serverUuid' | 'scope' | 'id'>,
    limit: number,
    limits: Limits,
  ) {
    return this.#ticketPage(serverUuid, { open: true, scope, id, limit }, limits);
  }

  async #ticketPages(serverUuid: string, query: Query, limits: Limits): Promise<Ticket[]> {
    const all: Ticket[] = [];
    for (let offset = 0; ; offset += PAGE) {
      const page = await this.#ticketPage(serverUuid, { ...query, limit: PAGE, offset }, limits);
      all.push(...page);
      if (page.length < PAGE) return all;
    }
  }

  #ticketPage(serverUuid: string, query: Query, limits: Limits): Promise<Ticket[]> {
    const path = `/servers/${segment(serverUuid)}/tickets${queryOf(query)}`;
    return this.caller.json({ method: 'GET', path, ...limits }, z.array(ticketAnswer));
  }

  ticket(uuid: string, limits: Limits = {}): Promise<Ticket> {
    return this.caller.json({ method: 'GET', path: `/tickets/${segment(uuid)}`, ...limits }, ticketAnswer);
  }

  /**
   * `active`: the ticket holds its lock. `queued`: not active in that time.
   * @throws ApiError when it can no longer become active
   */
  async waitTicket(uuid: string, seconds: number, signal?: AbortSignal): Promise<'active' | 'queued'> {
    const path = `/tickets/${segment(uuid)}/wait?timeout=${seconds}`;
    const withinMs = (seconds + 15) * 1000;
    try {
      await this.caller.call({
        method: 'GET',
        path,
        withinMs,
        patienceMs: 0,
        ownConnection: true,
        ...(signal && { signal }),
      });
      return 'active';
    } catch (error) {
      if (error instanceof ApiError && error.statusCode === 408) return 'queued';
      throw error;
    }
  }

  renewTicket(uuid: string, seconds: number, limits: Limits = {}): Promise<Ticket> {
    const body = JSON.stringify({ expires_in: seconds });
    const path = `/tickets/${segment(uuid)}/renew`;
    return this.caller.json({ method: 'POST', path, body, repeatable: true, ...limits }, ticketAnswer);
  }

  async releaseTicket(uuid: string, limits: Limits = {}): Promise<void> {
    await this.caller.call({ method: 'PUT', path: `/tickets/${segment(uuid)}/release`, ...limits });
  }

  /** Also succeeds when the answer was lost and the repeated request finds no ticket. */
  async deleteTicket(uuid: string, limits: Limits = {}): Promise<void> {
    const path = `/tickets/${segment(uuid)}`;
    await this.caller.call({ method: 'DELETE', path, ...limits }).catch((error: unknown) => {
      if (!(error instanceof ApiError && error.mayBeDone && error.statusCode === 404)) throw error;
    });
  }

  async queues(): Promise<Queue[]> {
    const all: Queue[] = [];
    for (let offset = 0; ; offset += PAGE) {
      const path = `/waitlist?limit=${PAGE}&offset=${offset}`;
      const page = await this.caller.json({ method: 'GET', path }, z.array(queueAnswer));
      all.push(...page);
      if (page.length < PAGE) return all;
    }
  }

  instances(signal?: AbortSignal): Promise<Instance[]> {
    return this.caller.json({ method: 'GET', path: '/instances', ...(signal && { signal }) }, z.array(instanceAnswer));
  }

  /** Asks for the live instances, so that others are known when a named one leaves. */
  async learnInstances(): Promise<Instance[]> {
    const instances = await this.instances();
    const urls = instances.filter(({ state }) => state === 'live').map(({ url }) => url);
    this.caller.learn(urls.flatMap((url) => this.#sameKind(url)));
    return instances;
  }

  drain(uuid: string): Promise<Instance> {
    const path = `/instances/${segment(uuid)}/drain`;
    return this.caller.json({ method: 'POST', path, repeatable: true }, instanceAnswer);
  }

  audit(query: Query) {
    return this.caller.json({ method: 'GET', path: `/audit${queryOf(query)}` }, z.array(auditAnswer));
  }

  /** Returns one page. */
  tokens(query: Query = {}): Promise<Token[]> {
    return this.caller.json({ method: 'GET', path: `/tokens${queryOf(query)}` }, z.array(tokenAnswer));
  }

  /** Yields all tokens, page by page, newest first. */
  async *allTokens(query: Query = {}): AsyncGenerator<Token> {
    for (let after: string | undefined; ; ) {
      const page = await this.tokens({ ...query, limit: PAGE, after });
      yield* page;
      if (page.length < PAGE) return;
      after = page.at(-1)?.uuid;
    }
  }

  createToken(request: {
    name: string;
    role: string;
    expires_in?: number | undefined;
    server_uuid?: string | undefined;
  }): Promise<CreatedToken> {
    return this.caller.json({ method: 'POST', path: '/tokens', body: JSON.stringify(request) }, createdTokenAnswer);
  }

  async revokeToken(uuid: string): Promise<void> {
    await this.caller.call({ method: 'DELETE', path: `/tokens/${segment(uuid)}` });
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

const segment = encodeURIComponent;

function queryOf(query: Query): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined) continue;
    params.append(name, Array.isArray(value) ? value.join(',') : String(value));
  }
  const text = params.toString();
  return text === '' ? '' : `?${text}`;
}

function dataOf({ data }: ServerSentEvent): unknown {
  return data === '' ? {} : JSON.parse(data);
}

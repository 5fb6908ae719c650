/**
 * The REST API as functions. Each asks whichever instance answers (caller.ts) and gives what it said, checked.
 * They throw ApiError for an error that an instance told, NoAnswerError when none answered, UnexpectedAnswerError.
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
  type Queue,
  queueAnswer,
  type Server,
  serverAnswer,
  statusChangeAnswer,
  type Task,
  type TaskEvent,
  type Ticket,
  type Token,
  taskAnswer,
  taskEventAnswer,
  taskHistoryAnswer,
  ticketAnswer,
  tokenAnswer,
} from './answers.ts';
import { type Call, Caller, type CallerDependencies } from './caller.ts';
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
  /** Makes it safe to ask for the task again when the answer was lost. */
  idempotencyKey: string;
}

export interface TicketRequest {
  /** A server, or `default`. */
  serverUuid: string;
  scope: string;
  id: string;
  action?: string | undefined;
  expiresInSeconds: number;
  /** By which the ticket is found when the answer was lost. */
  requestId: string;
}

/** Which of a server's open tickets; what is absent is any. */
export interface OpenTickets {
  scope?: string;
  id?: string;
  reqid?: string;
}

/** How long a call may take, where that matters. */
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

  constructor(deps: CallerDependencies) {
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

  /** One page. */
  servers(query: Query = {}, signal?: AbortSignal): Promise<Server[]> {
    const path = `/servers${queryOf(query)}`;
    return this.caller.json({ method: 'GET', path, ...(signal && { signal }) }, z.array(serverAnswer));
  }

  /** All of them, page by page, in order of uuid. */
  async *allServers(query: Query = {}): AsyncGenerator<Server> {
    for (let offset = 0; ; offset += PAGE) {
      const page = await this.servers({ ...query, limit: PAGE, offset });
      yield* page;
      if (page.length < PAGE) return;
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

  /** Gives the id. */
  async createTask({ serverUuid, task, params, timeoutMs, ticketUuid, idempotencyKey }: TaskRequest): Promise<string> {
    const body = JSON.stringify({ task, params, timeout_ms: timeoutMs, ticket_uuid: ticketUuid });
    const headers = { 'idempotency-key': idempotencyKey };
    const path = `/servers/${segment(serverUuid)}/tasks`;
    return (await this.caller.json({ method: 'POST', path, body, headers, repeatable: true }, idAnswer)).id;
  }

  task(id: string): Promise<Task> {
    return this.caller.json({ method: 'GET', path: `/tasks/${segment(id)}` }, taskAnswer);
  }

  /** Also when the answer was lost and the repeated request is refused because the first one ended the task. */
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

  /** Not repeated by itself: a create whose answer is lost may have taken a place (find it by its `reqid`). */
  createTicket(request: TicketRequest): Promise<CreatedTicket> {
    const { serverUuid, scope, id, action, expiresInSeconds: expires_in, requestId } = request;
    const body = JSON.stringify({ scope, id, action, expires_in });
    const path = `/servers/${segment(serverUuid)}/tickets`;
    const headers = { 'x-request-id': requestId };
    return this.caller.json({ method: 'POST', path, body, headers }, createdTicketAnswer);
  }

  /** All of a server's, of every status, in the order of their creation: there may be very many. */
  tickets(serverUuid: string, limits: Limits = {}): Promise<Ticket[]> {
    return this.#ticketPages(serverUuid, {}, limits);
  }

  /** Those that are active or queued. Instances of earlier versions cannot choose: there all are read, and sifted here. */
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

  /** The first of a queue: its holder, and those that wait. @throws ApiError InvalidArgument by an instance of an earlier version */
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

  /** `active`: it holds its lock. `queued`: not within that time. @throws ApiError when it will not be */
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

  /** Also when the answer was lost, and the repeated request finds that it is gone. */
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

  /** Asks for the living instances, so that those that were not named are known when a named one goes. */
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

  /** One page. */
  tokens(query: Query = {}): Promise<Token[]> {
    return this.caller.json({ method: 'GET', path: `/tokens${queryOf(query)}` }, z.array(tokenAnswer));
  }

  /** All of them, page by page, newest first. */
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

  /** A token that goes over TLS is not sent to an address without it, whoever says so. */
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

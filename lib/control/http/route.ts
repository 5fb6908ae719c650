/**
 * A route: a contract (lib/protocol/api) and its handler. The listener serves it, `params.ts`
 * validates by it. Each noun binds its handlers to its contracts in its own folder, as a function
 * of what they need (`ticket-routes.ts`, `task-routes.ts` …), and its `subsystem.ts` lists them.
 */
import type { z } from 'zod';
import { type Contract, type Known, type ParamsOf, requiredRoleOf } from '../../protocol/api/contract/contract.ts';
import type { Actor } from '../access/token.ts';
import type { WithAuditRecord } from '../audit-part.ts';

/** Rows of a list as JSON, without the enclosing brackets. */
export interface RowText {
  text: string;
  isLast: boolean;
}

export interface ServerSentEvent {
  /** Where to resume after this event. */
  id: string;
  /** Absent: sends only where to resume. */
  name?: string;
  /** Sent as JSON. */
  data?: unknown;
}

export interface RouteAnswer {
  status: number;
  headers?: Record<string, string>;
  /** Sent as JSON; absent means no body. */
  body?: unknown;
  /** Sent unchanged with this content type, in place of `body`. */
  text?: { contentType: string; content: string | Buffer };
  /** Sent as one JSON array, chunk by chunk, in place of `body`. */
  rows?: { first: string; rest: AsyncIterator<RowText> };
  /** Sent as server-sent events until it ends or the caller disconnects, in place of `body`. */
  events?: AsyncIterable<ServerSentEvent>;
}

/** The server of a request's path. */
export interface ServerState {
  /** The status as it is displayed. */
  status: string;
  /** According to the roster, whatever status is displayed. */
  isRunning: boolean;
}

/**
 * Reads the server of a path, for a contract's preconditions.
 * @throws ServerNotFoundError; ServerNotRunningError if it must be running and is not
 */
export type RequireServer = (serverUuid: string, mustRun: boolean) => Promise<ServerState>;

export interface RequestContext<Params> {
  params: Params;
  /** All parameters as received, for a route that passes on undeclared ones. */
  rawParams: Readonly<Record<string, unknown>>;
  /** The server of the path, if a precondition requires it. */
  server: ServerState | undefined;
  /** The caller. */
  actor: Actor;
  /** The body as received, of a route with `rawBody`. */
  body: Buffer;
  requestId: string;
  /** The peer's address, from its socket. */
  source: string;
  header(name: string): string | undefined;
  /** Aborted when the caller disconnects or this instance stops. */
  signal: AbortSignal;
  /** Names the object that the request has created, for the audit, if the answer does not. */
  setAuditedObject(object: string): void;
  /**
   * Carries out the change of a route that is `recordedInCommit`. `work` writes the audit record of
   * this request in the statement of the change. `object`: the object of the change, if it is known
   * before.
   */
  withAuditRecord: WithAuditRecord;
}

/** How this server answers a route, beyond its contract. */
interface Serving {
  /** Memory reserved before the answer is made (`answer-budget.ts`); then its real size counts. */
  answerBytes?: number;
  /** Not logged (health checks, heartbeats). */
  quiet?: boolean;
  /** Answered from memory while the database is unreachable, for callers that were known before. */
  withoutDatabase?: boolean;
  /**
   * The handler parses the body itself; it has at most so many bytes, and none for a GET. A route
   * that is `signed` needs this.
   */
  rawBody?: { maxBytes: number };
  /** Answers errors in a form of its own. */
  errorAnswer?(error: unknown): RouteAnswer;
}

export interface Route extends Contract, Serving {
  /** See `recordedInCommit`. */
  commitsAuditRecord?: true;
  handler(context: RequestContext<never>): Promise<RouteAnswer> | RouteAnswer;
}

type Table = Readonly<Record<string, Contract>>;

/** What a handler may return: one of the contract's answers. It throws its errors. */
type AnswerTo<One extends Contract> = {
  [Status in keyof One['responses'] & number]: One['responses'][Status] extends { codes: readonly unknown[] }
    ? never
    : { status: Status; headers?: Record<string, string> } & ContentOf<One['responses'][Status]>;
}[keyof One['responses'] & number];

type ContentOf<One> = One extends { schema: infer Schema extends z.ZodType }
  ?
      | { body: Known<z.input<Schema>> }
      | Required<Pick<RouteAnswer, 'text'>>
      | Required<Pick<RouteAnswer, 'rows'>>
      | Required<Pick<RouteAnswer, 'events'>>
  : unknown;

type ContractHandler<One extends Contract> = (
  context: RequestContext<ParamsOf<One>>,
) => Promise<AnswerTo<One>> | AnswerTo<One>;

interface RecordedInCommit<Handler> {
  handler: Handler;
  commitsAuditRecord: true;
}

type BoundHandler<Handler> = Handler | RecordedInCommit<Handler>;

/** Binds a handler to each contract of the table. */
export function bind<Contracts extends Table>(
  contracts: Contracts,
  handlers: { readonly [Name in keyof Contracts]: BoundHandler<ContractHandler<Contracts[Name]>> },
  serving: { readonly [Name in keyof Contracts]?: Serving } = {},
): Route[] {
  return Object.entries(contracts).map(([name, contract]) => {
    const bound = handlers[name as keyof Contracts] as BoundHandler<Route['handler']>;
    const served = typeof bound === 'function' ? { handler: bound } : bound;
    return { ...contract, ...serving[name as keyof Contracts], ...served };
  });
}

/**
 * A handler that writes the audit's record in the commit of its change (`withAuditRecord`); for
 * others the record is committed before they are called.
 */
export const recordedInCommit = <Handler>(handler: Handler): RecordedInCommit<Handler> => ({
  handler,
  commitsAuditRecord: true,
});

/**
 * Whether the audit records it. Agents' posts are not changes by an operator, and arrive each
 * second.
 */
export function changesSomething(contract: Pick<Contract, 'requiredRole' | 'method'>): boolean {
  return contract.method !== 'GET' && requiredRoleOf(contract) !== 'agent';
}

export const ok = <Body>(body: Body) => ({ status: 200 as const, body });
export const accepted = <Body>(body: Body) => ({ status: 202 as const, body });
export const empty = <Status extends 200 | 204>(status: Status) => ({ status });
export const stream = (events: AsyncIterable<ServerSentEvent>) => ({ status: 200 as const, events });
export const content = (text: { contentType: string; content: string | Buffer }) => ({ status: 200 as const, text });

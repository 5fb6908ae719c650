/**
 * A route: one value that says how it is called, what it takes and what it answers. The listener
 * serves it, `params.ts` validates by it and `openapi.ts` describes it, so the three cannot differ.
 * Each noun's routes are in a file of their own (`server-routes.ts`, `task-routes.ts` …);
 * `routes.ts` is the table of all.
 */
import type { z } from 'zod';
import type { Actor, Need } from '../access/token.ts';
import type { ServerObject } from '../servers/server.ts';
import type { LongRequestKind } from './caller-quotas.ts';
import type { ServerSentEvent } from './event-stream.ts';
import type { Services } from './services.ts';

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE';

/**
 * `server`: the server named by `server_uuid` exists (else 404); the handler gets it without its
 * wide parts. `running`: its status is also `running` (else 409).
 */
type Precondition = 'server' | 'running';

/**
 * The source of a route. The reference's routes answer a type failure with 500, as its clients
 * expect.
 */
export type Origin = 'reference' | 'own';

export interface ResponseDescription {
  description: string;
  schema?: z.ZodType;
  /** Shown in the OpenAPI document; must satisfy `schema`. */
  example?: unknown;
  /** Default application/json. */
  contentType?: string;
}

/** Rows of a list as JSON, without the enclosing brackets. */
export interface RowText {
  text: string;
  isLast: boolean;
}

export interface Reply {
  status: number;
  headers?: Record<string, string>;
  /** Sent as JSON; absent means no body. */
  body?: unknown;
  /** Sent unchanged with this content type, in place of `body`. */
  text?: { contentType: string; content: string };
  /** Sent as one JSON array, chunk by chunk, in place of `body`. */
  rows?: { first: string; rest: AsyncIterator<RowText> };
  /** Sent as server-sent events until it ends or the caller disconnects, in place of `body`. */
  events?: AsyncIterable<ServerSentEvent>;
}

export interface RequestContext<Params> {
  params: Params;
  /** All parameters as received, for a route that passes on undeclared ones. */
  rawParams: Readonly<Record<string, unknown>>;
  /** The server of the path, if a precondition requires it. */
  server: ServerObject | undefined;
  /** Whether it is running, according to the roster. */
  isRunning: boolean;
  services: Services;
  /** The caller. */
  actor: Actor;
  requestId: string;
  /** The peer's address, from its socket. */
  source: string;
  header(name: string): string | undefined;
  /** Aborted when the caller disconnects or this instance stops. */
  signal: AbortSignal;
  /** Names the object that the request has created, for the audit, if the reply does not. */
  concerns(object: string): void;
}

export interface Route<Schema extends z.ZodObject = z.ZodObject> {
  name: string;
  method: Method;
  /** With `:name` for path parameters. */
  path: string;
  summary: string;
  tag: string;
  origin: Origin;
  /**
   * All parameters: path parameters by name; the others by query (GET, DELETE) or body (POST, PUT),
   * or either.
   */
  params: Schema;
  /** Ignores undeclared parameters instead of refusing them. */
  lenient?: boolean;
  /**
   * The handler stores undeclared parameters (`rawParams`): the whole body is one value. With
   * `lenient`.
   */
  takesAnyBody?: boolean;
  /** Query parameters that may be repeated; their values are joined by commas. */
  repeatable?: readonly string[];
  /**
   * The reference's process crashes on parameters that fail their rules; here they are 400 for any
   * origin.
   */
  referenceAborts?: boolean;
  /** Headers that the route reads, for the OpenAPI document. */
  requestHeaders?: Record<string, string>;
  preconditions: readonly Precondition[];
  /** The required role; absent: `reader` for GET and `operator` for all else. */
  need?: Need;
  /** Answered from memory while the database is unreachable, for callers that were known before. */
  withoutDatabase?: boolean;
  responses: Record<number, ResponseDescription>;
  /** Memory reserved before the answer is made (`answer-budget.ts`); then its real size counts. */
  answerBytes?: number;
  /** The kind of long-lasting request, limited per caller (`caller-quotas.ts`). */
  lasts?: LongRequestKind;
  /** Not logged (health checks, heartbeats). */
  quiet?: boolean;
  handler(context: RequestContext<z.output<Schema>>): Promise<Reply> | Reply;
}

export function needOf({ need, method }: Pick<Route, 'need' | 'method'>): Need {
  return need ?? (method === 'GET' ? 'reader' : 'operator');
}

/**
 * Whether the audit records it. Agents' posts are not changes by an operator, and arrive each
 * second.
 */
export function changesSomething(route: Pick<Route, 'need' | 'method'>): boolean {
  return route.method !== 'GET' && needOf(route) !== 'agent';
}

/**
 * Checks a route's parameter types against its handler, then erases them, so all routes fit one
 * table.
 */
export function route<Schema extends z.ZodObject>(definition: Route<Schema>): Route {
  return definition as unknown as Route;
}

/** Whether a parameter may be in the body. Bodies of other requests are not read. */
export function takesBody({ method, path, params, takesAnyBody }: Route): boolean {
  if (method === 'GET') return false;
  const inPath = pathParamsOf(path);
  return takesAnyBody === true || Object.keys(params.shape).some((name) => !inPath.includes(name));
}

/** The parameter names in a path such as `/tasks/:taskid/wait`. */
export function pathParamsOf(path: string): string[] {
  return [...path.matchAll(/:(\w+)/g)].map((match) => match[1] as string);
}

export const ok = (body: unknown): Reply => ({ status: 200, body });
export const empty = (status: 200 | 204): Reply => ({ status });

/**
 * What a route is: one value that says how it is called, what it takes and what it answers. The listener serves it,
 * `params.ts` validates by it and `openapi.ts` describes it, so that the three cannot differ. Each noun's routes live
 * in a file of their own (`server-routes.ts`, `task-routes.ts` …); `routes.ts` is the table of all.
 */
import type { z } from 'zod';
import type { Actor, Need } from '../access/token.ts';
import type { ServerObject } from '../servers/server.ts';
import type { ServerSentEvent } from './event-stream.ts';
import type { Services } from './services.ts';

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE';

/**
 * `server`: the server named by `server_uuid` exists (else 404) and is handed to the handler, without its wide parts.
 * `running`: its status is `running`, too (else 409).
 */
export type Precondition = 'server' | 'running';

/** Where a route comes from; the reference's own answer a type failure with 500, as its clients know it. */
export type Origin = 'reference' | 'own';

export interface ResponseDescription {
  description: string;
  schema?: z.ZodType;
  /** Shown in the OpenAPI document; must satisfy `schema`. */
  example?: unknown;
  /** Default application/json. */
  contentType?: string;
}

export interface Reply {
  status: number;
  headers?: Record<string, string>;
  /** Sent as JSON; absent means no body. */
  body?: unknown;
  /** Sent as it is, with this content type, in place of `body`. */
  text?: { contentType: string; content: string };
  /** Sent as server-sent events until it ends or the caller leaves, in place of `body`. */
  events?: AsyncIterable<ServerSentEvent>;
}

export interface RequestContext<Params> {
  params: Params;
  /** All parameters as they came, for what a route passes on undeclared. */
  rawParams: Readonly<Record<string, unknown>>;
  /** The server of the path, when a precondition asked for it. */
  server: ServerObject | undefined;
  /** Whether it is running, by the roster. */
  isRunning: boolean;
  services: Services;
  /** Who asks. */
  actor: Actor;
  requestId: string;
  header(name: string): string | undefined;
  /** Aborted when the caller leaves or this instance stops. */
  signal: AbortSignal;
  /** What the request has made, for the audit, where the reply does not say. */
  concerns(object: string): void;
}

export interface Route<Schema extends z.ZodObject = z.ZodObject> {
  name: string;
  method: Method;
  /** With `:name` for parameters of the path. */
  path: string;
  summary: string;
  tag: string;
  origin: Origin;
  /** All parameters: of the path by name; the others come by query (GET, DELETE) or body (POST, PUT), or either way. */
  params: Schema;
  /** Undeclared parameters are passed by instead of refused. */
  lenient?: boolean;
  /** Parameters of the query that may be given more than once; the values are joined by commas. */
  repeatable?: readonly string[];
  /** Of parameters that fail their rules the reference's process dies; here they are 400, whatever the origin. */
  referenceAborts?: boolean;
  /** Headers that the route reads, for the document. */
  requestHeaders?: Record<string, string>;
  preconditions: readonly Precondition[];
  /** The role it takes; `reader` for GET and `operator` for all else, when absent. */
  need?: Need;
  /** Answered from memory: while the database is away, for whoever was known before. */
  withoutDatabase?: boolean;
  responses: Record<number, ResponseDescription>;
  /** Not worth a line in the log (health checks, heartbeats). */
  quiet?: boolean;
  handler(context: RequestContext<z.output<Schema>>): Promise<Reply> | Reply;
}

export function needOf({ need, method }: Pick<Route, 'need' | 'method'>): Need {
  return need ?? (method === 'GET' ? 'reader' : 'operator');
}

/** Whether the audit keeps a record of it. What agents post is no operator's change, and comes each second. */
export function changesSomething(route: Pick<Route, 'need' | 'method'>): boolean {
  return route.method !== 'GET' && needOf(route) !== 'agent';
}

/** Checks a route's parameters against its handler, then forgets them, so that routes of all shapes fit one table. */
export function route<Schema extends z.ZodObject>(definition: Route<Schema>): Route {
  return definition as unknown as Route;
}

/** The names of the parameters in a path such as `/tasks/:taskid/wait`. */
export function pathParamsOf(path: string): string[] {
  return [...path.matchAll(/:(\w+)/g)].map((match) => match[1] as string);
}

export const ok = (body: unknown): Reply => ({ status: 200, body });
export const empty = (status: 200 | 204): Reply => ({ status });

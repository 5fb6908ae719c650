/**
 * From a routed request to its reply, in the reference's order: parameters gathered, undeclared ones refused, ids of
 * the path, preconditions, the rules of the route, the handler. Whatever fails throws; the listener maps it.
 */
import type { IncomingMessage } from 'node:http';
import type { Actor } from '../access/token.ts';
import { CnapiError } from '../errors.ts';
import { NARROW } from '../servers/server-store.ts';
import { type FoundServer, ServerNotFoundError } from '../servers/servers.ts';
import { readBody } from './body.ts';
import type { Exchange } from './exchange.ts';
import { InvalidArgumentError, ServerNotRunningError } from './http-errors.ts';
import { mergeParams, type Params, parseParams, parsePathParams, refuseUndeclared } from './params.ts';
import type { Reply, RequestContext, Route } from './route.ts';
import type { Services } from './services.ts';

export interface RoutedExchange {
  request: IncomingMessage;
  path: Record<string, string>;
  exchange: Exchange;
  services: Services;
  actor: Actor;
  record?: ChangeRecord | undefined;
}

/** What the audit is told of a request that may change something. */
export interface ChangeRecord {
  /** When the parameters are as the route wants them, before anything is changed. */
  begin(): Promise<void>;
  /** When all rules are met: what follows may change something. */
  carried(): void;
  /** What it makes, for one that has no answer. */
  concerns(object: string): void;
}

/** A request whose parameters are gathered, however it came. */
export interface Call
  extends Pick<RequestContext<never>, 'rawParams' | 'services' | 'actor' | 'requestId' | 'header' | 'signal'>,
    Pick<RoutedExchange, 'record'> {}

export async function answer(route: Route, { request, path, exchange, ...rest }: RoutedExchange): Promise<Reply> {
  const { requestId, signal } = exchange;
  const rawParams = await unlessOver(gatherParams(request, path, route.repeatable), signal);
  return carryOut(route, { ...rest, rawParams, requestId, signal, header: (name) => singleHeader(request, name) });
}

export async function carryOut(route: Route, call: Call): Promise<Reply> {
  const { rawParams, services, record } = call;
  refuseUndeclared(route, rawParams);
  const ids = parsePathParams(route, rawParams);
  refuseIfOver(call.signal);
  const parsed = (async () => parseParams(route, rawParams) as never)();
  // Beside each other: the one is a commit, the other a look that need not wait for it.
  const begun = parsed.then(() => record?.begin());
  const [precondition, begin] = await Promise.allSettled([checkPreconditions(route, ids, services), begun]);
  const found = resultOf(precondition);
  resultOf(begin);
  const params = await parsed;
  refuseIfOver(call.signal);
  record?.carried();
  const concerns = (object: string) => record?.concerns(object);
  return route.handler({ ...call, concerns, params, server: found?.server, isRunning: found?.isRunning ?? false });
}

function resultOf<Value>(result: PromiseSettledResult<Value>): Value {
  if (result.status === 'rejected') throw result.reason;
  return result.value;
}

/** What came late finds the token ended, or the instance stopping. @throws the signal's reason */
function refuseIfOver({ reason }: AbortSignal): void {
  if (reason instanceof CnapiError) throw reason;
}

/** Whatever comes first: what is asked for, or a reason not to wait for it any more. */
function unlessOver<Value>(work: Promise<Value>, signal: AbortSignal): Promise<Value> {
  return new Promise((resolve, reject) => {
    const onAbort = () => signal.reason instanceof CnapiError && reject(signal.reason);
    signal.addEventListener('abort', onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}

async function gatherParams(
  request: IncomingMessage,
  path: Record<string, string>,
  repeatable: readonly string[] | undefined,
): Promise<Params> {
  const url = request.url ?? '';
  const mark = url.indexOf('?');
  const body = await readBody(request);
  return mergeParams({ path, query: mark < 0 ? '' : url.slice(mark + 1), repeatable, body });
}

async function checkPreconditions(
  route: Route,
  ids: Record<string, string>,
  services: Services,
): Promise<FoundServer | undefined> {
  if (route.preconditions.length === 0) return undefined;
  const uuid = ids.server_uuid;
  if (uuid === undefined) throw new Error(`route ${route.name} has preconditions but no server_uuid`);
  const found = await services.servers.get(uuid, NARROW);
  if (found === undefined) throw new ServerNotFoundError(uuid);
  if (route.preconditions.includes('running') && !found.isRunning)
    throw new ServerNotRunningError(uuid, found.server.status);
  return found;
}

/** @throws InvalidArgumentError when it is given more than once. */
function singleHeader(request: IncomingMessage, name: string): string | undefined {
  const values = request.headersDistinct[name.toLowerCase()] ?? [];
  if (values.length > 1) throw new InvalidArgumentError(`Header ${name} is given more than once`);
  return values[0];
}

/**
 * Turns a routed request into its answer, in the order of Triton's CNAPI: gather the parameters,
 * refuse undeclared ones, check the ids of the path, the preconditions and the route's rules, and
 * call the handler. Failures throw; the listener maps them.
 */
import type { IncomingMessage } from 'node:http';
import { CnapiError } from '../../../platform/errors.ts';
import { normalizeAddress } from '../../../platform/network/networks.ts';
import { takesBody } from '../../../protocol/api/contract/contract.ts';
import type { Actor } from '../../access/token.ts';
import type { RequestAudit } from '../../audit/request-audit.ts';
import type { WithAuditRecord } from '../../audit-part.ts';
import { InvalidArgumentError } from '../../request-errors.ts';
import type { Exchange } from '../answer/exchange.ts';
import type { RequestContext, RequireServer, Route, RouteAnswer, ServerState } from '../route.ts';
import { checkDroppedBody, readBody, readRawBody } from './body.ts';
import { checkDeclared, checkStorable, mergeParams, parseParams, parsePathParams } from './params.ts';

const NO_BODY = Buffer.alloc(0);

export interface RoutedExchange {
  request: IncomingMessage;
  path: Record<string, string>;
  exchange: Exchange;
  requireServer: RequireServer;
  actor: Actor;
  /** The body of a route with `rawBody`, if it was read already. */
  body?: Buffer | undefined;
  record?: RequestAudit | undefined;
}

/** A request whose parameters are gathered, from any source. */
interface GatheredRequest
  extends Pick<RequestContext<never>, 'rawParams' | 'actor' | 'requestId' | 'source' | 'header' | 'signal'>,
    Partial<Pick<RequestContext<never>, 'body'>>,
    Pick<RoutedExchange, 'requireServer' | 'record'> {}

export async function readAndHandle(
  route: Route,
  { request, path, exchange, body: received, ...rest }: RoutedExchange,
): Promise<RouteAnswer> {
  const { requestId, signal } = exchange;
  if (route.answerBytes !== undefined) exchange.reserve(route.answerBytes);
  if (route.longRequest !== undefined) exchange.countLongRequest(route.longRequest);
  const hasBody = takesBody(route);
  if (!hasBody) checkDroppedBody(request, exchange);
  const body = received ?? (await readRouteBody(route, request, exchange));
  const fields = hasBody && route.rawBody === undefined ? await unlessOver(readBody(request, exchange), signal) : {};
  const rawParams = mergeParams({ path, query: queryOf(request), repeatable: route.repeatable, body: fields });
  const source = normalizeAddress(request.socket.remoteAddress ?? '');
  const header = (name: string) => singleHeader(request, name);
  return validateAndHandle(route, { ...rest, rawParams, body, requestId, signal, source, header });
}

/** The body as it is; empty for a route that takes none, or that has it parsed. */
export async function readRouteBody(route: Route, request: IncomingMessage, exchange: Exchange): Promise<Buffer> {
  const { rawBody } = route;
  if (rawBody === undefined || !takesBody(route)) return NO_BODY;
  return unlessOver(readRawBody(request, exchange, rawBody.maxBytes), exchange.signal);
}

export async function validateAndHandle(route: Route, call: GatheredRequest): Promise<RouteAnswer> {
  const { rawParams, requireServer, record } = call;
  checkDeclared(route, rawParams);
  checkStorable(route, rawParams);
  const ids = parsePathParams(route, rawParams);
  checkNotAborted(call.signal);
  const parsed = (async () => parseParams(route, rawParams) as never)();
  // Both run in parallel: the read of the precondition need not wait for the commit of the record.
  const begun = parsed.then(() => (route.commitsAuditRecord === true ? undefined : record?.begin()));
  const [precondition, begin] = await Promise.allSettled([checkPreconditions(route, ids, requireServer), begun]);
  const server = resultOf(precondition);
  resultOf(begin);
  const params = await parsed;
  checkNotAborted(call.signal);
  record?.handlerStarted();
  const setAuditedObject = (object: string) => record?.setAuditedObject(object);
  const withAuditRecord: WithAuditRecord = (work, object) =>
    route.commitsAuditRecord === true && record !== undefined ? record.beginWith(work, object) : work(undefined);
  return route.handler({ body: NO_BODY, ...call, setAuditedObject, withAuditRecord, params, server });
}

function resultOf<Value>(result: PromiseSettledResult<Value>): Value {
  if (result.status === 'rejected') throw result.reason;
  return result.value;
}

/**
 * Refuses a late request whose token has ended, or whose instance is stopping. @throws the signal's
 * reason
 */
function checkNotAborted({ reason }: AbortSignal): void {
  if (reason instanceof CnapiError) throw reason;
}

/** Settles with the work, or with a reason not to wait for it any more, whichever comes first. */
function unlessOver<Value>(work: Promise<Value>, signal: AbortSignal): Promise<Value> {
  return new Promise((resolve, reject) => {
    const onAbort = () => signal.reason instanceof CnapiError && reject(signal.reason);
    signal.addEventListener('abort', onAbort, { once: true });
    if (signal.aborted) onAbort();
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}

function queryOf({ url = '' }: IncomingMessage): string {
  const mark = url.indexOf('?');
  return mark < 0 ? '' : url.slice(mark + 1);
}

async function checkPreconditions(
  route: Route,
  ids: Record<string, string>,
  requireServer: RequireServer,
): Promise<ServerState | undefined> {
  if (route.preconditions.length === 0) return undefined;
  const uuid = ids.server_uuid;
  if (uuid === undefined) throw new Error(`route ${route.name} has preconditions but no server_uuid`);
  return requireServer(uuid, route.preconditions.includes('running'));
}

/** @throws InvalidArgumentError if it is repeated. */
function singleHeader(request: IncomingMessage, name: string): string | undefined {
  const values = request.headersDistinct[name.toLowerCase()] ?? [];
  if (values.length > 1) throw new InvalidArgumentError(`Header ${name} is given more than once`);
  return values[0];
}

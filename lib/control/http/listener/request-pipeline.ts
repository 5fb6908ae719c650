/**
 * Connects the listener with the authenticator and the audit. Counts connections, authenticates a
 * request or an upgrade, carries the request out under that identity, and records it if it changes
 * something. Ends long-lasting requests when their token ends.
 */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { type CnapiError, DatabaseUnavailableError, isTemporary, messageOf } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import { normalizeAddress } from '../../../platform/network/networks.ts';
import { requiredRoleOf } from '../../../protocol/api/contract/contract.ts';
import { isUuid } from '../../../protocol/api/contract/rules.ts';
import { TokenEndedError, UnauthorizedError } from '../../access/access-errors.ts';
import type { Authenticator } from '../../access/authenticator.ts';
import { type Actor, OPEN_ACTOR } from '../../access/token.ts';
import type { AuditLog } from '../../audit/audit-log.ts';
import type { AuditOutcome } from '../../audit/audit-store.ts';
import { RequestAudit } from '../../audit/request-audit.ts';
import { errorAnswer, isDefect } from '../answer/error-mapping.ts';
import { CALLER_LEFT_STATUS, type Exchange } from '../answer/exchange.ts';
import { type RoutedExchange, readAndHandle, readRouteBody } from '../request/read-and-handle.ts';
import { changesSomething, type Route, type RouteAnswer } from '../route.ts';
import { connectionKey } from './connection-key.ts';
import {
  hasSignatureHeaders,
  isRefusedForNow,
  type RequestSigning,
  readSignedHead,
  type SignedCaller,
} from './request-signing.ts';

type UnauthenticatedRequest = Pick<RoutedExchange, 'request' | 'path' | 'exchange'>;

/** Who may upgrade a request; about this server. */
interface AskedUpgrade {
  requiredRole: 'agent' | 'operator';
  serverUuid: string;
}

/** The caller had disconnected before the answer; the log uses the same status. */
const CALLER_LEFT_OUTCOME: AuditOutcome = { status: CALLER_LEFT_STATUS, code: 'CallerLeft', object: undefined };
const MAX_PATH_CHARS = 500;

interface RequestPipelineDeps {
  authenticator: Authenticator;
  audit: AuditLog;
  /** Whether the beats of this instance succeed. */
  isDatabaseHealthy: () => boolean;
  signing: RequestSigning;
  log: Logger;
}

export class RequestPipeline {
  readonly #authenticator: Authenticator;
  readonly #audit: AuditLog;
  readonly #isDatabaseHealthy: () => boolean;
  readonly #signing: RequestSigning;
  readonly #log: Logger;
  /** Connections that count, by their two ends; an agent's link no longer counts. */
  readonly #counted = new Map<string, { address: string; isExcess: boolean }>();

  constructor({ authenticator, audit, isDatabaseHealthy, signing, log }: RequestPipelineDeps) {
    this.#authenticator = authenticator;
    this.#audit = audit;
    this.#isDatabaseHealthy = isDatabaseHealthy;
    this.#signing = signing;
    this.#log = log;
  }

  get isOpen(): boolean {
    return this.#authenticator.isOpen;
  }

  /** A connection is open, perhaps before its handshake; may cut it off immediately. */
  connected(socket: Socket): void {
    const address = socket.remoteAddress;
    if (this.#authenticator.isOpen || address === undefined) return;
    const classification = this.#authenticator.connected(address);
    const key = connectionKey(socket);
    this.#counted.set(key, { address, isExcess: classification === 'excess' });
    socket.once('close', () => this.#uncount(key));
    if (classification === 'cut') socket.destroy();
  }

  /** Why a request is refused before it is parsed. */
  rateLimitRefusal({ socket, headersDistinct }: IncomingMessage): CnapiError | undefined {
    if (this.#authenticator.isOpen) return undefined;
    const isExcess = this.#counted.get(connectionKey(socket))?.isExcess === true;
    const address = socket.remoteAddress ?? '';
    return this.#authenticator.rateLimitRefusal({
      address,
      authorization: headersDistinct.authorization ?? [],
      isExcess,
    });
  }

  /** @throws any refusal, or what the route throws */
  async serveAuthorized(route: Route, routed: Omit<RoutedExchange, 'actor' | 'record'>): Promise<RouteAnswer> {
    const isSigned = route.signed === true && hasSignatureHeaders(routed.request);
    if (this.#authenticator.isOpen && !changesSomething(route) && !isSigned)
      return readAndHandle(route, { ...routed, actor: OPEN_ACTOR });
    const record = changesSomething(route) ? auditOf(this.#audit, route, routed) : undefined;
    let caller: SignedCaller | undefined;
    try {
      const { actor, body, signed } = isSigned
        ? await this.#authenticateSigned(route, routed, record)
        : { actor: await this.#authenticate(route, routed, record), body: undefined, signed: undefined };
      caller = signed;
      const answer = await readAndHandle(route, { ...routed, record, actor, body });
      record?.end({ status: answer.status, code: undefined, object: objectOf(answer) });
      return answer;
    } catch (error) {
      const { status } = (route.errorAnswer ?? errorAnswer)(error);
      const { code } = errorAnswer(error).body as { code: string };
      const isAbandoned = routed.exchange.hasCallerLeft && record?.mayHaveChanged === true;
      record?.end(isAbandoned ? CALLER_LEFT_OUTCOME : { status, code, object: undefined });
      if (caller !== undefined && record?.isRefusedByStatement === true && isRefusedForNow(error))
        await this.#permitRepetition(caller, routed.request);
      throw error;
    }
  }

  /** Whether the sender may upgrade, as far as is known without asking the database. */
  knows({ socket, headersDistinct }: IncomingMessage, asked: AskedUpgrade): boolean {
    const { authorization = [] } = headersDistinct;
    const address = socket.remoteAddress ?? '';
    return this.#authenticator.knows({ address, authorization, ...asked });
  }

  /**
   * Authorizes a caller, or the agent of a server, to upgrade. @throws as
   * `Authenticator.authenticate`
   */
  async authenticateUpgrade(request: IncomingMessage, asked: AskedUpgrade): Promise<Actor> {
    const { socket, headersDistinct } = request;
    const authorization = headersDistinct.authorization ?? [];
    const address = socket.remoteAddress ?? '';
    try {
      return await this.#authenticator.authenticateAndAuthorize({ address, authorization, ...asked });
    } catch (error) {
      const { code, message } = error as CnapiError;
      const { requiredRole, serverUuid: server_uuid } = asked;
      if (requiredRole === 'agent' && !isDefect(error) && this.#authenticator.linkRefused())
        this.#log.warn({ server_uuid, source: normalizeAddress(address), code, message }, 'link: refused');
      throw error;
    }
  }

  /**
   * The WebSocket is open: it ends with its token, and that of an agent no longer counts as a
   * caller's connection.
   */
  upgraded(socket: Socket, actor: Actor, requiredRole: AskedUpgrade['requiredRole']): void {
    if (requiredRole === 'agent') this.#uncount(connectionKey(socket));
    if (actor.tokenUuid === undefined) return;
    const release = this.#authenticator.onTokenEnd(actor, () => socket.destroy());
    if (socket.destroyed) release();
    else socket.once('close', release);
  }

  async #authenticate(
    route: Route,
    { request, path, exchange }: UnauthenticatedRequest,
    record: RequestAudit | undefined,
  ): Promise<Actor> {
    const entry = {
      address: request.socket.remoteAddress ?? '',
      authorization: request.headersDistinct.authorization ?? [],
      requiredRole: requiredRoleOf(route),
      serverUuid: path.server_uuid?.toLowerCase(),
      mayBeStale: route.withoutDatabase === true,
    };
    const actor = await this.#authenticator.authenticate(entry).catch((error: unknown) => {
      // The request is refused, but the caller is known: the record names it.
      const remembered = isTemporary(error) ? this.#authenticator.remembered(entry.authorization) : undefined;
      if (remembered !== undefined) record?.setActor(auditedActor(remembered));
      // A caller with neither a token nor a signature is told how to sign.
      if (route.signed === true && entry.authorization.length === 0 && error instanceof UnauthorizedError)
        this.#signing.check(readSignedHead(request));
      throw error;
    });
    exchange.actor = actor;
    record?.setActor(auditedActor(actor));
    this.#authenticator.authorize(actor, entry);
    if (actor.tokenUuid !== undefined) this.#endWithToken(exchange, actor);
    if (record !== undefined) this.#checkHealthy();
    return actor;
  }

  /**
   * Nothing of the body is read, nor `100 Continue` sent, for a caller that did not sign the
   * headers. The audit names the caller unless the request is a repetition, which anybody may send
   * who has seen it.
   */
  async #authenticateSigned(
    route: Route,
    { request, path, exchange }: UnauthenticatedRequest,
    record: RequestAudit | undefined,
  ): Promise<{ actor: Actor; body: Buffer; signed: SignedCaller }> {
    const organization = path.organization ?? '';
    const head = readSignedHead(request);
    const address = request.socket.remoteAddress ?? '';
    const signing = this.#signing;
    signing.check(head);
    const signed = await this.#authenticator.authenticateSignature(address, {
      isKnown: () => signing.isKnown(head, organization),
      authenticate: () => signing.authenticate(head, organization),
    });
    const { actor } = signed;
    exchange.signer = actor;
    const body = await readRouteBody(route, request, exchange);
    await this.#authenticator.authenticateSignedBody(address, async () => {
      signed.checkBody(body);
      if (record === undefined) return;
      try {
        this.#checkHealthy();
        await signed.receive(normalizeAddress(address));
      } catch (error) {
        if (isTemporary(error)) record.setActor(auditedActor(actor));
        throw error;
      }
    });
    exchange.bodyIsSigned();
    record?.setActor(auditedActor(actor));
    return { actor, body, signed };
  }

  /** If it fails, the caller has to sign the request again. */
  async #permitRepetition(caller: SignedCaller, { socket }: IncomingMessage): Promise<void> {
    if (!this.#isDatabaseHealthy()) return;
    try {
      await caller.permitRepetition(normalizeAddress(socket.remoteAddress ?? ''));
    } catch (error) {
      const fields = isTemporary(error) ? { reason: messageOf(error) } : { err: error };
      this.#log.warn(
        fields,
        'http: could not release the signature of a refused change; the caller must sign it again',
      );
    }
  }

  #endWithToken(exchange: Exchange, actor: Actor): void {
    const release = this.#authenticator.onTokenEnd(actor, () => exchange.abort(new TokenEndedError()));
    if (exchange.signal.aborted) release();
    else exchange.signal.addEventListener('abort', release, { once: true });
  }

  /**
   * An instance whose beats fail changes nothing. Each change would hold a database connection,
   * which may wait unnoticed for an unreachable standby long after its caller has disconnected.
   * @throws DatabaseUnavailableError
   */
  #checkHealthy(): void {
    if (!this.#isDatabaseHealthy()) throw new DatabaseUnavailableError(new Error('the beats of this instance fail'));
  }

  #uncount(key: string): void {
    const counted = this.#counted.get(key);
    if (counted === undefined) return;
    this.#counted.delete(key);
    this.#authenticator.disconnected(counted.address);
  }
}

function auditOf(audit: AuditLog, route: Route, { request, path, exchange }: UnauthenticatedRequest): RequestAudit {
  const { server_uuid: serverUuid, ...others } = path;
  return new RequestAudit(audit, {
    key: audit.newKey(),
    actor: 'nobody',
    roles: [],
    tokenUuid: undefined,
    action: route.name,
    method: route.method,
    path: exchange.path.slice(0, MAX_PATH_CHARS),
    serverUuid: isUuid(serverUuid) ? serverUuid : undefined,
    object: keepable(Object.values(others)[0]),
    requestId: exchange.requestId,
    source: normalizeAddress(request.socket.remoteAddress ?? ''),
  });
}

const auditedActor = ({ name: actor, roles, tokenUuid, principal }: Actor) => ({
  actor,
  roles,
  tokenUuid,
  principalUuid: principal?.uuid,
});

/** A path may contain characters that the database cannot store. */
function keepable(text: string | undefined): string | undefined {
  return text?.replace(/[^\P{C}]/gu, '?').slice(0, MAX_PATH_CHARS);
}

/** The object that the request created, if the answer names it. */
function objectOf({ body }: RouteAnswer): string | undefined {
  if (typeof body !== 'object' || body === null) return undefined;
  const { id, uuid } = body as { id?: unknown; uuid?: unknown };
  return [id, uuid].find((one) => typeof one === 'string');
}

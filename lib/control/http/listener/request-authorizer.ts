/**
 * Connects the listener with the gate and the audit. Counts connections, authenticates a request or
 * an upgrade, carries the request out under that identity, and records it if it changes something.
 * Ends long-lasting requests when their token ends.
 */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { type CnapiError, DatabaseUnavailableError, isTemporary } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import type { StatementPart } from '../../../platform/sql-text.ts';
import { needOf } from '../../../protocol/api/contract.ts';
import { isUuid } from '../../../protocol/api/rules.ts';
import { TokenEndedError, TooManyRequestsError } from '../../access/access-errors.ts';
import type { Gate } from '../../access/gate.ts';
import { plainAddress } from '../../access/networks.ts';
import { type Actor, OPEN } from '../../access/token.ts';
import type { AuditLog, AuditSubject } from '../../audit/audit-log.ts';
import type { AuditOutcome } from '../../audit/audit-store.ts';
import { errorReply, isDefect } from '../reply/error-mapping.ts';
import type { Exchange } from '../reply/exchange.ts';
import { answer, type ChangeRecord, type RoutedExchange } from '../request/pipeline.ts';
import { changesSomething, type Reply, type Route } from '../route.ts';

type Asked = Pick<RoutedExchange, 'request' | 'path' | 'exchange'>;

/** The caller had disconnected before the reply; the log uses the same status. */
const CALLER_LEFT: AuditOutcome = { status: 499, code: 'CallerLeft', object: undefined };
const MAX_PATH_CHARS = 500;

interface RequestAuthorizerDeps {
  gate: Gate;
  audit: AuditLog;
  /** Whether the beats of this instance succeed. */
  isDatabaseHealthy: () => boolean;
  log: Logger;
}

export class RequestAuthorizer {
  readonly #gate: Gate;
  readonly #audit: AuditLog;
  readonly #isDatabaseHealthy: () => boolean;
  readonly #log: Logger;
  /** Connections that count, by their two ends; an agent's link no longer counts. */
  readonly #counted = new Map<string, { address: string; isExcess: boolean }>();

  constructor({ gate, audit, isDatabaseHealthy, log }: RequestAuthorizerDeps) {
    this.#gate = gate;
    this.#audit = audit;
    this.#isDatabaseHealthy = isDatabaseHealthy;
    this.#log = log;
  }

  get isOpen(): boolean {
    return this.#gate.isOpen;
  }

  /** A connection is open, perhaps before its handshake; may cut it off at once. */
  connected(socket: Socket): void {
    const address = socket.remoteAddress;
    if (this.#gate.isOpen || address === undefined) return;
    const classification = this.#gate.connected(address);
    const call = callOf(socket);
    this.#counted.set(call, { address, isExcess: classification === 'excess' });
    socket.once('close', () => this.#uncount(call));
    if (classification === 'cut') socket.destroy();
  }

  /** Why a request is refused before it is parsed. */
  tooMuch({ socket, headersDistinct }: IncomingMessage): CnapiError | undefined {
    if (this.#gate.isOpen) return undefined;
    const isExcess = this.#counted.get(callOf(socket))?.isExcess === true;
    const address = socket.remoteAddress ?? '';
    return this.#gate.tooMuch({ address, authorization: headersDistinct.authorization ?? [], isExcess });
  }

  /** @throws any refusal, or what the route throws */
  async carryOut(route: Route, routed: Omit<RoutedExchange, 'actor' | 'record'>): Promise<Reply> {
    if (this.#gate.isOpen && !changesSomething(route)) return answer(route, { ...routed, actor: OPEN });
    const record = changesSomething(route) ? new AuditEntry(this.#audit, route, routed) : undefined;
    try {
      const actor = await this.#enter(route, routed, record);
      if (record !== undefined) this.#refuseWhileUnhealthy();
      const reply = await answer(route, { ...routed, record, actor });
      record?.end({ status: reply.status, code: undefined, object: objectOf(reply) });
      return reply;
    } catch (error) {
      const { status, body } = errorReply(error);
      const { code } = body as { code: string };
      const isAbandoned = routed.exchange.hasCallerLeft && record?.isCarried === true;
      if (!(error instanceof TooManyRequestsError))
        record?.end(isAbandoned ? CALLER_LEFT : { status, code, object: undefined });
      throw error;
    }
  }

  /**
   * Authorizes the agent of this server, or its token, to open its link. @throws as `Gate.enter`
   */
  async enterLink(request: IncomingMessage, serverUuid: string): Promise<Actor> {
    const { socket, headersDistinct } = request;
    const authorization = headersDistinct.authorization ?? [];
    const address = socket.remoteAddress ?? '';
    try {
      return await this.#gate.enter({ address, authorization, need: 'agent', serverUuid });
    } catch (error) {
      const { code, message } = error as CnapiError;
      if (!isDefect(error) && this.#gate.linkRefused())
        this.#log.warn({ server_uuid: serverUuid, source: plainAddress(address), code, message }, 'link: refused');
      throw error;
    }
  }

  /**
   * The agent's link is open: it no longer counts as a caller's connection, and it ends with its
   * token.
   */
  linked(socket: Socket, actor: Actor): void {
    this.#uncount(callOf(socket));
    if (actor.tokenUuid === undefined) return;
    const release = this.#gate.hold(actor, () => socket.destroy());
    if (socket.destroyed) release();
    else socket.once('close', release);
  }

  async #enter(route: Route, { request, path, exchange }: Asked, record: AuditEntry | undefined): Promise<Actor> {
    const entry = {
      address: request.socket.remoteAddress ?? '',
      authorization: request.headersDistinct.authorization ?? [],
      need: needOf(route),
      serverUuid: path.server_uuid?.toLowerCase(),
      mayBeStale: route.withoutDatabase === true,
    };
    const actor = await this.#gate.signIn(entry).catch((error: unknown) => {
      // The request is refused, but the caller is known: the record names it.
      const known = isTemporary(error) ? this.#gate.remembered(entry.authorization) : undefined;
      if (known !== undefined) record?.by(known);
      throw error;
    });
    exchange.actor = actor;
    record?.by(actor);
    this.#gate.admit(actor, entry);
    if (actor.tokenUuid !== undefined) this.#endWithToken(exchange, actor);
    return actor;
  }

  #endWithToken(exchange: Exchange, actor: Actor): void {
    const release = this.#gate.hold(actor, () => exchange.abort(new TokenEndedError()));
    if (exchange.signal.aborted) release();
    else exchange.signal.addEventListener('abort', release, { once: true });
  }

  /**
   * An instance whose beats fail changes nothing. Each change would hold a database connection, which
   * may wait unnoticed for an unreachable standby long after its caller has disconnected.
   * @throws DatabaseUnavailableError
   */
  #refuseWhileUnhealthy(): void {
    if (!this.#isDatabaseHealthy()) throw new DatabaseUnavailableError(new Error('the beats of this instance fail'));
  }

  #uncount(call: string): void {
    const counted = this.#counted.get(call);
    if (counted === undefined) return;
    this.#counted.delete(call);
    this.#gate.disconnected(counted.address);
  }
}

/** Identifies an open connection; the same before and after TLS. */
function callOf({ remoteAddress, remotePort, localAddress }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress}`;
}

/** The audit record of one request. */
class AuditEntry implements ChangeRecord {
  readonly #audit: AuditLog;
  readonly #subject: AuditSubject;
  #isTried = false;
  #isBegun = false;
  /** The request may have changed something. */
  isCarried = false;
  #made: string | undefined;

  constructor(audit: AuditLog, route: Route, { request, path, exchange }: Asked) {
    const { server_uuid: serverUuid, ...others } = path;
    this.#audit = audit;
    this.#subject = {
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
      source: plainAddress(request.socket.remoteAddress ?? ''),
    };
  }

  by({ name, roles, tokenUuid }: Actor): void {
    Object.assign(this.#subject, { actor: name, roles, tokenUuid });
  }

  carried(): void {
    this.isCarried = true;
  }

  concerns(object: string): void {
    this.#made = object;
  }

  /** @throws DatabaseUnavailableError */
  async begin(): Promise<void> {
    this.#isTried = true;
    await this.#audit.begin(this.#subject);
    this.#isBegun = true;
  }

  async beginWith<Result>(
    work: (record: StatementPart) => Promise<Result>,
    object: string | undefined,
  ): Promise<Result> {
    this.#isTried = true;
    const result = await work(this.#audit.part({ ...this.#subject, object: object ?? this.#subject.object }));
    this.#isBegun = true;
    return result;
  }

  end(outcome: AuditOutcome): void {
    if (this.#isBegun) this.#audit.end(this.#subject, { ...outcome, object: outcome.object ?? this.#made });
    else this.#audit.refuse(this.#subject, outcome, { mayHaveBegun: this.#isTried });
  }
}

/** A path may contain characters that the database cannot store. */
function keepable(text: string | undefined): string | undefined {
  return text?.replace(/[^\P{C}]/gu, '?').slice(0, MAX_PATH_CHARS);
}

/** The object that the request created, if the reply names it. */
function objectOf({ body }: Reply): string | undefined {
  if (typeof body !== 'object' || body === null) return undefined;
  const { id, uuid } = body as { id?: unknown; uuid?: unknown };
  return [id, uuid].find((one) => typeof one === 'string');
}

/**
 * Upgrades of the HTTP listener: the requests of agents for their links, from the first check to
 * the moment when the link (lib/control/link) takes over the socket. A refused one is answered on
 * the bare socket.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type restify from 'restify';
import type { Clock } from '../../../platform/clock.ts';
import { CnapiError } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import { isUuid } from '../../../protocol/api/contract/rules.ts';
import { type Actor, OPEN_ACTOR } from '../../access/token.ts';
import { errorAnswer, isDefect } from '../answer/error-mapping.ts';
import { answerAndClose } from '../answer/raw-answer.ts';
import { NotUpgradableError, StoppingError } from '../http-errors.ts';
import { reasonNotAHandshake } from '../request/request-head.ts';
import type { RequestAuthorizer } from './request-authorizer.ts';

interface LinkUpgradesDeps {
  authorizer: RequestAuthorizer;
  clock: Clock;
  log: Logger;
  /** Why a request with this head is refused, whatever it asks for. */
  refusalOfHead(request: IncomingMessage): CnapiError | undefined;
  /** Nothing is to be sent on the connection before the answer to a request that arrives now. */
  isFree(socket: Duplex): boolean;
}

export interface LinkHandlers {
  /**
   * Why no agent is accepted now; asked before any work for an agent's link request. `isKnown`:
   * whether it may have a link, as far as this instance knows without asking the database.
   */
  onArrival(isKnown: () => boolean): CnapiError | undefined;
  /** Takes over the socket of an agent that requests its link, or returns why not. */
  onUpgrade(request: IncomingMessage, upgrade: Upgrade, actor: Actor): CnapiError | undefined;
}

type UpgradeResponse = ServerResponse & { claimUpgrade: () => { socket: Duplex; head: Buffer } };
type Upgrade = { socket: Duplex; head: Buffer; serverUuid: string };

const LINK_PATH = /^\/agents\/([^/?]+)\/link(?:\?|$)/;

export const isUpgrade = (response: ServerResponse | UpgradeResponse): response is UpgradeResponse =>
  'claimUpgrade' in response && response.claimUpgrade !== undefined;

export class LinkUpgrades {
  readonly #deps: LinkUpgradesDeps;
  #onArrival: LinkHandlers['onArrival'] = () => new StoppingError();
  /** Answered, and not closed yet. */
  readonly #refused = new Set<Duplex>();
  #isStopped = false;

  constructor(deps: LinkUpgradesDeps) {
    this.#deps = deps;
  }

  /** `requireUpgrade` answers a request for a link that is no upgrade. */
  start(
    server: restify.Server,
    { onArrival, onUpgrade }: LinkHandlers,
    requireUpgrade: (request: IncomingMessage) => void,
  ): void {
    this.#onArrival = onArrival;
    server.get({ name: 'AgentLink', path: '/agents/:server_uuid/link' }, (request, response, next) => {
      const plain = response as unknown as ServerResponse;
      if (isUpgrade(plain)) {
        const serverUuid = String(request.params.server_uuid).toLowerCase();
        void this.#link(request, { ...plain.claimUpgrade(), serverUuid }, onUpgrade);
      } else requireUpgrade(request);
      next(false);
    });
  }

  /** Accepts no more, and closes the connections of those that were refused. */
  stop(): void {
    this.#isStopped = true;
    for (const socket of this.#refused) socket.destroy();
  }

  /** False for a request that is not carried out. */
  checkHead(request: IncomingMessage, response: UpgradeResponse): boolean {
    // Nothing else handles its errors until the link has it; a caller may reset it at any time.
    request.socket.on('error', destroyThis);
    const isFree = this.#deps.isFree(request.socket);
    const refusal = this.#deps.refusalOfHead(request) ?? this.#reasonNotToUpgrade(request);
    // From Node 24.9 on, it asks before.
    if (!isFree) request.socket.destroy();
    else if (refusal !== undefined) this.#refuse(response.claimUpgrade().socket, refusal);
    return isFree && refusal === undefined;
  }

  #reasonNotToUpgrade(request: IncomingMessage): CnapiError | undefined {
    if (this.#isStopped) return new StoppingError();
    const serverUuid = LINK_PATH.exec(request.url ?? '')?.[1];
    if (request.method !== 'GET' || serverUuid === undefined) return new NotUpgradableError();
    if (!isUuid(serverUuid)) return new CnapiError('InvalidArgument', 409, 'Invalid server_uuid');
    const reason = reasonNotAHandshake(request);
    if (reason !== undefined) return new NotUpgradableError(reason);
    return this.#onArrival(() => this.#deps.authorizer.knowsAgent(request, serverUuid.toLowerCase()));
  }

  /** Opens the link of an agent: without a wait if no token is required. */
  async #link(
    request: IncomingMessage,
    { socket, head, serverUuid }: Upgrade,
    onUpgrade: LinkHandlers['onUpgrade'],
  ): Promise<void> {
    const { authorizer } = this.#deps;
    try {
      const actor = authorizer.isOpen ? OPEN_ACTOR : await authorizer.authenticateLink(request, serverUuid);
      if (socket.destroyed) return;
      const refusal = onUpgrade(request, { socket, head, serverUuid }, actor);
      if (refusal !== undefined) throw refusal;
      request.socket.off('error', destroyThis);
      authorizer.linked(request.socket, actor);
    } catch (error) {
      if (isDefect(error)) this.#deps.log.error({ err: error, server_uuid: serverUuid }, 'link: upgrade failed');
      this.#refuse(socket, error);
    }
  }

  #refuse(socket: Duplex, reason: unknown): void {
    this.#refused.add(socket);
    socket.once('close', () => this.#refused.delete(socket));
    if (this.#isStopped) socket.once('finish', () => socket.destroy());
    answerAndClose(socket, errorAnswer(reason), this.#deps.clock);
  }
}

/** Not a closure: a link's socket keeps it, and with a closure also the upgrade request. */
function destroyThis(this: Socket): void {
  this.destroy();
}

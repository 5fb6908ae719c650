/**
 * Upgrades of the HTTP listener: requests for a WebSocket, from the first check to the moment when
 * the noun whose route it is takes over the socket: the link of an agent (lib/control/link), or a
 * stream (lib/control/streams). A refused one is answered on the bare socket.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type restify from 'restify';
import { CnapiError } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import { isUuid } from '../../../protocol/api/contract/rules.ts';
import { type Actor, OPEN_ACTOR } from '../../access/token.ts';
import { errorAnswer, isDefect } from '../answer/error-mapping.ts';
import { answerAndClose } from '../answer/raw-answer.ts';
import { NotUpgradableError, StoppingError } from '../http-errors.ts';
import { reasonNotAHandshake } from '../request/request-head.ts';
import type { RequestPipeline } from './request-pipeline.ts';

interface UpgradesDeps {
  pipeline: RequestPipeline;
  clock: Clock;
  log: Logger;
  /** Why a request with this head is refused, whatever it asks for. */
  refusalOfHead(request: IncomingMessage): CnapiError | undefined;
  /** Nothing is to be sent on the connection before the answer to a request that arrives now. */
  isFree(socket: Duplex): boolean;
}

/** A route that a request can leave with a WebSocket only. All of them are about one server. */
export interface UpgradeRoute {
  name: string;
  /** `/agents/:server_uuid/link`. */
  path: string;
  /** `agent`: the one of this server, whose connection does not count as a caller's. */
  requiredRole: 'agent' | 'operator';
  /**
   * Why nobody is accepted now; asked before any work for the request. `isKnown`: whether its
   * sender may have what it wants, as far as this instance knows without asking the database.
   */
  onArrival?(isKnown: () => boolean): CnapiError | undefined;
  /** Takes over the socket, or returns why not. */
  open(request: IncomingMessage, upgrade: Upgrade, actor: Actor): CnapiError | undefined;
}

interface Upgrade {
  socket: Duplex;
  head: Buffer;
  serverUuid: string;
  /** All parameters of the path, by name. */
  path: Readonly<Record<string, string>>;
}

type UpgradeResponse = ServerResponse & { claimUpgrade: () => { socket: Duplex; head: Buffer } };

interface MatchedRoute extends UpgradeRoute {
  /** Matches the path; the first group is the server's uuid. */
  pattern: RegExp;
}

export const isUpgrade = (response: ServerResponse | UpgradeResponse): response is UpgradeResponse =>
  'claimUpgrade' in response && response.claimUpgrade !== undefined;

export class Upgrades {
  readonly #deps: UpgradesDeps;
  /** None before `start`: nothing can be upgraded yet. */
  #routes: readonly MatchedRoute[] | undefined;
  /** Answered, and not closed yet. */
  readonly #refused = new Set<Duplex>();
  #isStopped = false;

  constructor(deps: UpgradesDeps) {
    this.#deps = deps;
  }

  /** `requireUpgrade` answers a request for such a route that is not an upgrade. */
  start(
    server: restify.Server,
    routes: readonly UpgradeRoute[],
    requireUpgrade: (request: IncomingMessage) => void,
  ): void {
    this.#routes = routes.map((route) => ({ ...route, pattern: patternOf(route.path) }));
    for (const route of routes) {
      server.get({ name: route.name, path: route.path }, (request, response, next) => {
        const plain = response as unknown as ServerResponse;
        if (isUpgrade(plain)) {
          const path = request.params as Record<string, string>;
          const serverUuid = String(path.server_uuid).toLowerCase();
          void this.#open(route, request, { ...plain.claimUpgrade(), serverUuid, path });
        } else requireUpgrade(request);
        next(false);
      });
    }
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
    // Node 24.9 and later ask before the upgrade.
    if (!isFree) request.socket.destroy();
    else if (refusal !== undefined) this.#refuse(response.claimUpgrade().socket, refusal);
    return isFree && refusal === undefined;
  }

  /** Nothing else answers an upgrade that has no route in restify's router. */
  refuseUnrouted(response: UpgradeResponse, error: unknown): void {
    this.#refuse(response.claimUpgrade().socket, error);
  }

  #reasonNotToUpgrade(request: IncomingMessage): CnapiError | undefined {
    if (this.#isStopped || this.#routes === undefined) return new StoppingError();
    const [route, serverUuid] = this.#matching(request.url ?? '');
    if (request.method !== 'GET' || route === undefined) return new NotUpgradableError();
    if (!isUuid(serverUuid)) return new CnapiError('InvalidArgument', 409, 'Invalid server_uuid');
    const reason = reasonNotAHandshake(request);
    if (reason !== undefined) return new NotUpgradableError(reason);
    const asked = { requiredRole: route.requiredRole, serverUuid: serverUuid.toLowerCase() };
    return route.onArrival?.(() => this.#deps.pipeline.knows(request, asked));
  }

  #matching(url: string): [route: UpgradeRoute, serverUuid: string] | [undefined, ''] {
    for (const route of this.#routes ?? []) {
      const serverUuid = route.pattern.exec(url)?.[1];
      if (serverUuid !== undefined) return [route, serverUuid];
    }
    return [undefined, ''];
  }

  /** Without a wait if no token is required. */
  async #open(route: UpgradeRoute, request: IncomingMessage, upgrade: Upgrade): Promise<void> {
    const { pipeline } = this.#deps;
    const { socket, serverUuid } = upgrade;
    const { requiredRole } = route;
    try {
      const asked = { requiredRole, serverUuid };
      const actor = pipeline.isOpen ? OPEN_ACTOR : await pipeline.authenticateUpgrade(request, asked);
      if (socket.destroyed) return;
      const refusal = route.open(request, upgrade, actor);
      if (refusal !== undefined) throw refusal;
      request.socket.off('error', destroyThis);
      pipeline.upgraded(request.socket, actor, requiredRole);
    } catch (error) {
      const { name } = route;
      if (isDefect(error))
        this.#deps.log.error({ err: error, server_uuid: serverUuid, name }, 'http: an upgrade failed');
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

/**
 * `/agents/:server_uuid/link` with or without a query. Other parameters need no encoding: the
 * router gives up on one that it cannot decode.
 */
function patternOf(path: string): RegExp {
  const [server, ...others] = path.split(':server_uuid');
  const rest = others.join('').replace(/:\w+/g, '[\\w.-]{1,200}');
  return new RegExp(`^${server}([^/?]+)${rest}(?:\\?|$)`);
}

/** Not a closure: a link's socket keeps it, and with a closure also the upgrade request. */
function destroyThis(this: Socket): void {
  this.destroy();
}

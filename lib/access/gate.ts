/**
 * Who may come in, and how often: the one place that the edges ask. Composed by `lib/app.ts`, called by the listener for each
 * connection, request and upgrade.
 *
 *     request ──too many──▶ 429
 *             ──access is open──▶ anybody on this machine
 *             ──token──▶ good: who it names · bad: 401, and 429 when there were too many of them
 *             ──none──▶ a trusted network's role, else 401
 *     known   ──role too small, or an agent's token of another server──▶ 403
 */
import type { Clock } from '../ports/clock.ts';
import {
  RoleTooSmallError,
  TokenOfAnotherServerError,
  TooManyRequestsError,
  UnauthorizedError,
} from './access-errors.ts';
import { plainAddress, sourceOf, type TrustedNetwork, TrustedNetworks } from './networks.ts';
import type { SignIn } from './sign-in.ts';
import { SourceBuckets, SourceCounts } from './source-limits.ts';
import { type Actor, bearerOf, type Need, OPEN, permits } from './token.ts';

export interface GateConfig {
  access: 'open' | 'tokens';
  trustedNetworks: readonly TrustedNetwork[];
  /** Each 0: without limit. */
  requestsPerSecond: number;
  connectionsPerSource: number;
  failedSignInsPerMinute: number;
}

export interface Entry {
  /** The peer's, as its socket has it. */
  address: string;
  /** The `Authorization` headers, as many as were given. */
  authorization: readonly string[];
  need: Need;
  /** The server that it is about, if it is an agent's. */
  serverUuid?: string | undefined;
  /** It asks nothing of the database, and shall be answered while that is away. */
  mayBeOld?: boolean;
}

/** A request, before it is looked at. */
export interface Coming extends Pick<Entry, 'address' | 'authorization'> {
  /** Its connection is one too many. */
  isExcess: boolean;
}

export interface GateStats {
  linksRefused: number;
  signInsFailed: number;
  requestsLimited: number;
  connectionsLimited: number;
}

/** As much at once as comes in so long. */
const BURST_S = 2;
/** Connections beyond the limit that are kept for as long as it takes to say so; more are cut off. */
const SPARE_CONNECTIONS = 50;
const REFUSED_LINES = { perSecond: 1 / 6, burst: 10 };

export class Gate {
  readonly #config: GateConfig;
  readonly #clock: Clock;
  readonly #signIn: SignIn;
  readonly #networks: TrustedNetworks;
  readonly #requests: SourceBuckets | undefined;
  readonly #failures: SourceBuckets | undefined;
  readonly #lines = new SourceBuckets(REFUSED_LINES);
  readonly #connections = new SourceCounts();
  readonly #stats: GateStats = { linksRefused: 0, signInsFailed: 0, requestsLimited: 0, connectionsLimited: 0 };

  constructor({ config, clock, signIn }: { config: GateConfig; clock: Clock; signIn: SignIn }) {
    this.#config = config;
    this.#clock = clock;
    this.#signIn = signIn;
    this.#networks = new TrustedNetworks(config.trustedNetworks);
    const { requestsPerSecond, failedSignInsPerMinute } = config;
    this.#requests = buckets(requestsPerSecond, requestsPerSecond * BURST_S);
    this.#failures = buckets(failedSignInsPerMinute / 60, failedSignInsPerMinute);
  }

  get isOpen(): boolean {
    return this.#config.access === 'open';
  }

  get stats(): Readonly<GateStats> {
    return this.#stats;
  }

  /** What becomes of a connection: `excess` ones are told that they are too many. Paired with `disconnected`. */
  connected(address: string): 'counted' | 'excess' | 'cut' {
    const limit = this.#config.connectionsPerSource;
    const count = this.#connections.add(sourceOf(plainAddress(address)));
    if (this.isOpen || limit === 0 || count <= limit) return 'counted';
    this.#stats.connectionsLimited += 1;
    return count <= limit + SPARE_CONNECTIONS ? 'excess' : 'cut';
  }

  disconnected(address: string): void {
    this.#connections.remove(sourceOf(plainAddress(address)));
  }

  /** Why a request is not even looked at. Takes its place in the count. */
  tooMuch({ address, authorization, isExcess }: Coming): TooManyRequestsError | undefined {
    if (this.isOpen) return undefined;
    if (isExcess && !this.#isRemembered(authorization))
      return new TooManyRequestsError('connections', 'connectionsPerSource', 1);
    const waitMs = this.#requests?.take(sourceOf(plainAddress(address)), this.#clock.now()) ?? 0;
    if (waitMs === 0) return undefined;
    this.#stats.requestsLimited += 1;
    return new TooManyRequestsError('requests', 'requestsPerSecond', Math.ceil(waitMs / 1000));
  }

  /** An agent was not let in. True when it is worth a line in the log: not for each of thousands. */
  linkRefused(): boolean {
    this.#stats.linksRefused += 1;
    return this.#lines.take('links', this.#clock.now()) === 0;
  }

  /** Signs in, and is admitted. */
  async enter(entry: Entry): Promise<Actor> {
    const actor = await this.signIn(entry);
    this.admit(actor, entry);
    return actor;
  }

  /** Who that is. @throws UnauthorizedError, TooManyRequestsError, DatabaseUnavailableError */
  async signIn(entry: Entry): Promise<Actor> {
    return this.isOpen || entry.need === 'anyone' ? OPEN : this.#whoIs(entry);
  }

  /** Whether they may do that. @throws RoleTooSmallError, TokenOfAnotherServerError */
  admit(actor: Actor, { need, serverUuid }: Pick<Entry, 'need' | 'serverUuid'>): void {
    if (!permits(actor.roles, need)) throw new RoleTooSmallError(actor, need);
    if (actor.serverUuid !== undefined && actor.serverUuid !== serverUuid) throw new TokenOfAnotherServerError(actor);
  }

  /** Whose token that is, good or not by now; decides nothing. Undefined when this instance has not seen it to be good. */
  remembered([header, ...others]: readonly string[]): Actor | undefined {
    const token = header === undefined || others.length > 0 ? undefined : bearerOf(header);
    return token === undefined ? undefined : this.#signIn.remembered(token);
  }

  /** For what lasts: see `SignIn.hold`. */
  hold(actor: Actor, onEnded: () => void): () => void {
    return this.#signIn.hold(actor, onEnded);
  }

  async #whoIs({ address, authorization, mayBeOld = false }: Entry): Promise<Actor> {
    const [header, ...others] = authorization;
    if (header === undefined) return this.#trusted(address);
    const token = others.length > 0 ? undefined : bearerOf(header);
    const source = sourceOf(plainAddress(address));
    // A good token passes all the same: a neighbour's bad ones, behind one address, must not lock its owner out.
    const waitMs = this.#isRemembered(authorization) ? 0 : (this.#failures?.wouldWait(source, this.#clock.now()) ?? 0);
    if (waitMs > 0)
      throw new TooManyRequestsError('failed sign-ins', 'failedSignInsPerMinute', Math.ceil(waitMs / 1000));
    const actor = token === undefined ? undefined : await this.#signIn.whoIs(token, { mayBeOld });
    if (actor !== undefined) return actor;
    this.#stats.signInsFailed += 1;
    this.#failures?.take(source, this.#clock.now());
    throw new UnauthorizedError(
      'The token is not good: not one of ours, revoked, or expired. An admin makes another one',
    );
  }

  #isRemembered(authorization: readonly string[]): boolean {
    return this.remembered(authorization) !== undefined;
  }

  #trusted(address: string): Actor {
    const actor = this.#networks.actorAt(plainAddress(address));
    if (actor !== undefined) return actor;
    throw new UnauthorizedError(
      'A token is asked for: send it as `Authorization: Bearer …`; the command line takes it from CNAPI_TOKEN or CNAPI_TOKEN_FILE',
    );
  }
}

function buckets(perSecond: number, burst: number): SourceBuckets | undefined {
  return perSecond === 0 ? undefined : new SourceBuckets({ perSecond, burst: Math.max(1, burst) });
}

/**
 * Authenticates callers and limits their rate: the one place that the HTTP edges ask. Composed by
 * `lib/control/app.ts`, called by the listener for each connection, request and upgrade.
 *
 *     request ──too many──▶ 429
 *             ──access is open──▶ anybody on this machine
 *             ──token──▶ valid: its owner · invalid: 401, and 429 after too many of them
 *             ──none, or Basic──▶ a trusted network's role, else 401
 *     known   ──role too small, or an agent's token of another server──▶ 403
 */
import { CnapiError, isTemporary } from '../../platform/errors.ts';
import { KeyedCounts } from '../../platform/limiting/keyed-counts.ts';
import { RateLimit, RateLimiter, RateLimiters } from '../../platform/limiting/rate-limiter.ts';
import { normalizeAddress, sourceOf } from '../../platform/network/networks.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { RequiredRole } from '../../protocol/api/contract/roles.ts';
import {
  RoleTooSmallError,
  TokenOfAnotherServerError,
  TooManyRequestsError,
  UnauthorizedError,
} from './access-errors.ts';
import { type Actor, ANONYMOUS_ACTOR, carriesToken, OPEN_ACTOR, parseBearer, permits } from './token.ts';
import type { TokenAuthenticator } from './token-authenticator.ts';
import { type TrustedNetwork, TrustedNetworks } from './trusted-networks.ts';

export interface AuthenticatorConfig {
  access: 'open' | 'tokens';
  trustedNetworks: readonly TrustedNetwork[];
  /** This rate and the limits below: 0 means no limit. */
  requestsPerSecond: number;
  connectionsPerSource: number;
  failedAuthenticationsPerMinute: number;
}

interface AuthenticationRequest {
  /** The peer's address, from its socket. */
  address: string;
  /** All `Authorization` headers of the request. */
  authorization: readonly string[];
  requiredRole: RequiredRole;
  /** The server that an agent's request is about. */
  serverUuid?: string | undefined;
  /** The request does not use the database, and is answered while the database is unreachable. */
  mayBeStale?: boolean;
}

type AskedRight = Pick<AuthenticationRequest, 'requiredRole' | 'serverUuid'>;

/** How a caller without a token is authenticated. */
interface OtherCredential<Caller> {
  /** Whether this instance has found the credential valid before; asked beyond the limit only. */
  isKnown(): boolean;
  authenticate(): Promise<Caller>;
}

/** A request, before it is parsed. */
export interface UnparsedRequest extends Pick<AuthenticationRequest, 'address' | 'authorization'> {
  /** Whether its connection is above the limit. */
  isExcess: boolean;
}

interface AuthenticatorDeps {
  config: AuthenticatorConfig;
  clock: Clock;
  tokenAuthenticator: TokenAuthenticator;
}

interface AuthenticatorStats {
  linksRefused: number;
  authenticationsFailed: number;
  requestsLimited: number;
  connectionsLimited: number;
}

/** The burst is what the rate allows in this time. */
const BURST_S = 2;
/**
 * Connections above the limit that are kept until they have received the refusal; more are cut off.
 */
const SPARE_CONNECTIONS = 50;
const REFUSED_LINES = new RateLimit({ perSecond: 1 / 6, burst: 10 });

export class Authenticator {
  readonly #config: AuthenticatorConfig;
  readonly #clock: Clock;
  readonly #tokenAuthenticator: TokenAuthenticator;
  readonly #networks: TrustedNetworks;
  readonly #requests: RateLimiters | undefined;
  readonly #failures: RateLimiters | undefined;
  readonly #lines = new RateLimiter(REFUSED_LINES);
  readonly #connections = new KeyedCounts();
  readonly #stats: AuthenticatorStats = {
    linksRefused: 0,
    authenticationsFailed: 0,
    requestsLimited: 0,
    connectionsLimited: 0,
  };

  constructor({ config, clock, tokenAuthenticator }: AuthenticatorDeps) {
    this.#config = config;
    this.#clock = clock;
    this.#tokenAuthenticator = tokenAuthenticator;
    this.#networks = new TrustedNetworks(config.trustedNetworks);
    const { requestsPerSecond, failedAuthenticationsPerMinute } = config;
    this.#requests = RateLimiters.ifLimited({ perSecond: requestsPerSecond, burst: requestsPerSecond * BURST_S });
    this.#failures = RateLimiters.ifLimited({
      perSecond: failedAuthenticationsPerMinute / 60,
      burst: failedAuthenticationsPerMinute,
    });
  }

  get isOpen(): boolean {
    return this.#config.access === 'open';
  }

  get stats(): Readonly<AuthenticatorStats> {
    return this.#stats;
  }

  /**
   * Classifies a connection: an `excess` one is answered that its source has too many. Paired with
   * `disconnected`.
   */
  connected(address: string): 'counted' | 'excess' | 'cut' {
    const limit = this.#config.connectionsPerSource;
    const count = this.#connections.add(sourceOf(normalizeAddress(address)));
    if (this.isOpen || limit === 0 || count <= limit) return 'counted';
    this.#stats.connectionsLimited += 1;
    return count <= limit + SPARE_CONNECTIONS ? 'excess' : 'cut';
  }

  disconnected(address: string): void {
    this.#connections.add(sourceOf(normalizeAddress(address)), -1);
  }

  /** Returns why a request is refused before it is parsed. Counts the request. */
  rateLimitRefusal({ address, authorization, isExcess }: UnparsedRequest): TooManyRequestsError | undefined {
    if (this.isOpen) return undefined;
    if (isExcess && !this.#isRemembered(authorization))
      return new TooManyRequestsError('connections', 'connectionsPerSource', 1);
    const waitMs = this.#requests?.of(sourceOf(normalizeAddress(address))).take(this.#clock.now()) ?? 0;
    if (waitMs === 0) return undefined;
    this.#stats.requestsLimited += 1;
    return new TooManyRequestsError('requests', 'requestsPerSecond', Math.ceil(waitMs / 1000));
  }

  /** Counts a refused agent. Returns whether to log it; the rate of these lines is limited. */
  linkRefused(): boolean {
    this.#stats.linksRefused += 1;
    return this.#lines.take(this.#clock.now()) === 0;
  }

  /** Authenticates and authorizes. */
  async authenticateAndAuthorize(request: AuthenticationRequest): Promise<Actor> {
    const actor = await this.authenticate(request);
    this.authorize(actor, request);
    return actor;
  }

  /**
   * Returns the caller's identity. @throws UnauthorizedError, TooManyRequestsError,
   * DatabaseUnavailableError
   */
  async authenticate(request: AuthenticationRequest): Promise<Actor> {
    if (this.isOpen) return OPEN_ACTOR;
    return request.requiredRole === 'anyone' ? ANONYMOUS_ACTOR : this.#actorOf(request);
  }

  /**
   * Authenticates a caller in another way than by a token. Failures count like invalid tokens.
   * Beyond the limit of an address a known credential still passes, but not another one under the
   * same name, which may be a guess. @throws what `authenticate` throws, TooManyRequestsError
   */
  async authenticateSignature<Caller>(
    address: string,
    { isKnown, authenticate }: OtherCredential<Caller>,
  ): Promise<Caller> {
    if (this.isOpen) return authenticate();
    const limiter = this.#failures?.of(sourceOf(normalizeAddress(address)));
    const failures = this.#takeFailure(limiter, isKnown) ? limiter : undefined;
    try {
      const caller = await authenticate();
      failures?.giveBack();
      return caller;
    } catch (error) {
      if (isTemporary(error)) failures?.giveBack();
      else this.#stats.authenticationsFailed += 1;
      throw error;
    }
  }

  /**
   * Checks the rest of a credential, such as the body that was signed with it. A failure counts
   * like one of `authenticateSignature`, except a limit. @throws what `check` throws
   */
  async authenticateSignedBody(address: string, check: () => Promise<void>): Promise<void> {
    try {
      await check();
    } catch (error) {
      if (!this.isOpen && !isTemporary(error) && !isLimit(error)) {
        this.#failures?.of(sourceOf(normalizeAddress(address))).take(this.#clock.now());
        this.#stats.authenticationsFailed += 1;
      }
      throw error;
    }
  }

  /** Checks that the caller may do this. @throws RoleTooSmallError, TokenOfAnotherServerError */
  authorize(actor: Actor, request: AskedRight): void {
    const refusal = refusalOf(actor, request);
    if (refusal !== undefined) throw refusal;
  }

  /**
   * The owner of the token, whether or not the token is still valid; decides nothing. Undefined if
   * this instance has never seen it to be valid.
   */
  remembered([header, ...others]: readonly string[]): Actor | undefined {
    const token = header === undefined || others.length > 0 ? undefined : parseBearer(header);
    return token === undefined ? undefined : this.#tokenAuthenticator.remembered(token);
  }

  /** Whether the caller may do this, as far as is known without the database; decides nothing. */
  knows({ address, authorization, requiredRole, serverUuid }: Omit<AuthenticationRequest, 'mayBeStale'>): boolean {
    if (this.isOpen) return true;
    const actor = carriesToken(authorization)
      ? this.remembered(authorization)
      : this.#networks.actorAt(normalizeAddress(address));
    return actor !== undefined && refusalOf(actor, { requiredRole, serverUuid }) === undefined;
  }

  /** Calls `onEnded` when the actor's token ends: see `TokenAuthenticator.onTokenEnd`. */
  onTokenEnd(actor: Actor, onEnded: () => void): () => void {
    return this.#tokenAuthenticator.onTokenEnd(actor, onEnded);
  }

  async #actorOf({ address, authorization, mayBeStale = false }: AuthenticationRequest): Promise<Actor> {
    const [header, ...others] = authorization;
    if (!carriesToken(authorization)) return this.#trusted(address);
    const token = header === undefined || others.length > 0 ? undefined : parseBearer(header);
    // A known valid token always passes: invalid tokens of other callers behind the same address
    // must not lock out its owner.
    const failures = this.#isRemembered(authorization)
      ? undefined
      : this.#failures?.of(sourceOf(normalizeAddress(address)));
    // Counted before the database is asked. Otherwise as many guesses could be tried concurrently
    // as there are connections.
    this.#takeFailure(failures);
    const actor = token === undefined ? undefined : await this.#askOnce(token, { mayBeStale, failures });
    if (actor !== undefined) return actor;
    this.#stats.authenticationsFailed += 1;
    throw new UnauthorizedError('Invalid token: unknown, revoked or expired. An admin can create another one');
  }

  /** False beyond the limit, if that does not matter. @throws TooManyRequestsError */
  #takeFailure(failures: RateLimiter | undefined, mayExceed = () => false): boolean {
    const waitMs = failures?.take(this.#clock.now()) ?? 0;
    if (waitMs === 0) return true;
    if (mayExceed()) return false;
    throw new TooManyRequestsError(
      'failed authentications',
      'failedAuthenticationsPerMinute',
      Math.ceil(waitMs / 1000),
    );
  }

  /**
   * Returns the token's owner. A valid token, and a database that does not answer, do not count as
   * a failure.
   */
  async #askOnce(
    token: string,
    { mayBeStale, failures }: { mayBeStale: boolean; failures: RateLimiter | undefined },
  ): Promise<Actor | undefined> {
    let hasFailed = false;
    try {
      const actor = await this.#tokenAuthenticator.authenticate(token, { mayBeStale });
      hasFailed = actor === undefined;
      return actor;
    } finally {
      if (!hasFailed) failures?.giveBack();
    }
  }

  #isRemembered(authorization: readonly string[]): boolean {
    return this.remembered(authorization) !== undefined;
  }

  #trusted(address: string): Actor {
    const actor = this.#networks.actorAt(normalizeAddress(address));
    if (actor !== undefined) return actor;
    throw new UnauthorizedError('A token is required: send it as `Authorization: Bearer …`');
  }
}

const isLimit = (error: unknown): boolean => error instanceof CnapiError && error.statusCode === 429;

/** Why this caller may not do this. */
function refusalOf(actor: Actor, { requiredRole, serverUuid }: AskedRight) {
  if (!permits(actor.roles, requiredRole)) return new RoleTooSmallError(actor, requiredRole);
  if (actor.serverUuid !== undefined && actor.serverUuid !== serverUuid) return new TokenOfAnotherServerError(actor);
  return undefined;
}

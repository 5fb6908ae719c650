/**
 * A legacy CNAPI as its agents see it: a DNS name behind which a server takes POSTs. The name is
 * looked up for each request. The address that answered last is used while the name still resolves
 * to it, because several legacy instances do not share a server's status well. Used by
 * legacy-reporter.ts.
 */

import { HttpClient } from '../../platform/http-client/http-client.ts';
import { type Random, shuffled } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { AgentCredentials } from '../link/credentials.ts';
import { type Endpoint, endpointKey, type Holds, isHeld, withHold } from '../link/endpoints.ts';
import { requestCnapi } from '../link/http-request.ts';

interface LegacyCnapiClientDeps {
  clock: Clock;
  random: Random;
  serverUuid: string;
  agentVersion: string;
  resolve(): Promise<readonly Endpoint[]>;
  credentials: AgentCredentials;
  /** Receives the addresses that the name resolves to. */
  found(addresses: readonly Endpoint[]): void;
  localAddress?: string | undefined;
}

interface CnapiPost {
  path: string;
  body: string;
  withinMs: number;
  signal: AbortSignal;
}

/** Default time for the answer of one address. */
const ANSWER_WITHIN_MS = 5000;
/** Most addresses tried for one request; the next request may succeed. */
const MAX_ADDRESSES = 3;

export class LegacyCnapiClient {
  readonly #deps: LegacyCnapiClientDeps;
  readonly #http: HttpClient;
  #known: readonly Endpoint[] = [];
  #favourite: string | undefined;
  /** Addresses that asked not to be tried for a while. */
  #holds: Holds = {};

  constructor(deps: LegacyCnapiClientDeps) {
    this.#deps = deps;
    this.#http = new HttpClient(deps);
  }

  /** Addresses to use while the name cannot be looked up. */
  know(addresses: readonly Endpoint[]): void {
    this.#known = addresses;
  }

  /**
   * Resolves to the status that the first answering address gave; each has `withinMs` to answer.
   * @throws the last failure when none answers
   */
  async post(path: string, body: unknown, signal: AbortSignal, withinMs = ANSWER_WITHIN_MS): Promise<number> {
    await this.#lookUp();
    let failure: unknown = new Error(
      this.#known.length > 0 ? 'every known CNAPI asked the agent to retry later' : 'no address of a CNAPI is known',
    );
    for (const endpoint of this.#inOrder()) {
      if (signal.aborted) break;
      try {
        const status = await this.#postTo(endpoint, { path, body: JSON.stringify(body), signal, withinMs });
        this.#favourite = endpointKey(endpoint);
        return status;
      } catch (error) {
        failure = error;
      }
    }
    throw failure;
  }

  /** If no name server answers, the addresses known so far stay. */
  async #lookUp(): Promise<void> {
    const found = await this.#deps.resolve().catch(() => []);
    if (found.length === 0) return;
    this.#known = found;
    this.#deps.found(found);
  }

  #inOrder(): Endpoint[] {
    const isFavourite = (endpoint: Endpoint) => endpointKey(endpoint) === this.#favourite;
    const now = this.#deps.clock.now();
    const open = this.#known.filter((one) => !isHeld(this.#holds, one, now));
    const [first, others] = [open.filter(isFavourite), open.filter((one) => !isFavourite(one))];
    return [...first, ...shuffled(others, this.#deps.random)].slice(0, MAX_ADDRESSES);
  }

  async #postTo(endpoint: Endpoint, { path, ...post }: CnapiPost): Promise<number> {
    const { clock, serverUuid, agentVersion, localAddress, credentials } = this.#deps;
    const headers = {
      'Content-Type': 'application/json',
      Accept: 'application/json',
      'User-Agent': `cn-agent/${agentVersion} (node/${process.versions.node}) server/${serverUuid}`,
    };
    const { status, retryAfterMs: ms } = await requestCnapi(this.#http, {
      ...post,
      endpoint,
      credentials: credentials.credentialsTo(endpoint),
      method: 'POST',
      path: `/servers/${serverUuid}${path}`,
      headers,
      localAddress,
    });
    if (ms > 0) this.#holds = withHold(this.#holds, { endpoint, ms }, clock.now());
    return status;
  }
}

/**
 * Legacy agents as the rest of an instance sees them: `LegacyDispatch` posts tasks, the routes ask
 * for history, pause and resume. Any instance may ask any of them; there is no session. Created by
 * `core.ts`.
 */

import { CnapiError, isTemporary, messageOf } from '../../platform/errors.ts';
import { HttpError } from '../../platform/http-client/http-error.ts';
import type { Logger } from '../../platform/log.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { kindOfAgent } from '../roster/status/authority-row.ts';
import { readRow } from '../roster/status/roster-store.ts';
import type { Servers } from '../servers/servers.ts';
import { ADDRESS_KEYS, type AgentAddress, agentAddress, NoAgentAddressError } from './agent-address.ts';
import { type AgentAnswer, LegacyHttpClient, type LegacyHttpLimits } from './legacy-http-client.ts';
import { readSources } from './source-store.ts';
import { endOfAnswer, endOfError, failure, listOfAnswer, type PostedEnd } from './task-answer.ts';

/**
 * A legacy agent gave no answer, or a wrong one. 500, as in Triton's CNAPI. Only the log has the
 * reason of a failed connection: a caller that controls the address of a server's agent must not
 * learn what listens there.
 */
class AgentRequestError extends CnapiError {
  constructor(serverUuid: string, message: string, cause?: unknown) {
    super('InternalError', 500, `The agent of server ${serverUuid}: ${message}`, { cause });
  }
}

/** This instance has reached its limit of simultaneous requests to agents. */
class TooManyAgentRequestsError extends CnapiError {
  constructor(limit: number) {
    super(
      'TooManyAgentRequests',
      503,
      `This instance already waits for ${limit} agents; try again, or another instance`,
      {
        retryAfterSeconds: 1,
      },
    );
  }
}

interface LegacyAgentApiDeps {
  database: Queryable;
  servers: Pick<Servers, 'sysinfoParts'>;
  clock: Clock;
  version: string;
  /** Networks where agents may be, wherever they connected from. */
  networks: readonly string[];
  /**
   * Whether agents may be called on this machine's loopback although `networks` does not name it.
   */
  allowLoopback: boolean;
  log: Logger;
  limits?: Partial<LegacyHttpLimits>;
}

/** A task for the agent of its server. */
export interface LegacyAgentTask {
  id: string;
  serverUuid: string;
  name: string;
  params: JsonObject;
  requestId: string | undefined;
}

/** The time limit of history, pause and resume. */
const ANSWER_WITHIN_MS = 10_000;
const MAX_REQUESTS = 100;
/** Tries to find the agent's address; nothing is sent meanwhile. */
const LOCATE_TRIES = 30;
const LOCATE_PAUSE_MS = 1_000;

export class LegacyAgentApi {
  readonly #deps: LegacyAgentApiDeps;
  readonly #http: LegacyHttpClient;
  #requests = 0;
  #refused = 0;

  constructor(deps: LegacyAgentApiDeps) {
    this.#deps = deps;
    this.#http = new LegacyHttpClient(deps);
  }

  /** Since the start; `refused`: not sent, because too many requests were in progress. */
  stats(): { calls: number; failed: number; unread: number; refused: number } {
    return { ...this.#http.stats(), refused: this.#refused };
  }

  /** Whether the server runs with a legacy agent now. @throws DatabaseUnavailableError */
  async has(serverUuid: string): Promise<boolean> {
    const row = await readRow(this.#deps.database, serverUuid);
    return row !== undefined && kindOfAgent(row) === 'legacy';
  }

  /**
   * Sends the task to its server's agent once, and waits for its end. Settles within `timeoutMs`,
   * or immediately when `signal` aborts. Never rejects: an error becomes the task's failure, which
   * states whether the task may have run.
   */
  async post(
    { id, serverUuid, name, params, requestId }: LegacyAgentTask,
    { timeoutMs, signal }: { timeoutMs: number; signal: AbortSignal },
  ): Promise<PostedEnd> {
    try {
      const address = await this.#locateWithRetries(serverUuid, signal);
      const answer = await this.#http.call({
        address,
        serverUuid,
        requestId: requestId ?? id,
        method: 'POST',
        path: '/tasks',
        // One map of parameters, as in Triton's CNAPI.
        body: { task: name, params: { server_uuid: serverUuid, ...params } },
        timeoutMs,
        signal,
      });
      return endOfAnswer(answer);
    } catch (error) {
      if (error instanceof HttpError) {
        this.#noteFailure(serverUuid, error);
        return endOfError(error);
      }
      return failure(error instanceof CnapiError ? error.code : 'AgentUnreachable', messageOf(error));
    }
  }

  /**
   * The agent's own list of its last tasks. @throws AgentRequestError, NoAgentAddressError,
   * TooManyAgentRequestsError
   */
  async history(serverUuid: string, requestId: string): Promise<unknown[]> {
    const answer = await this.#ask(serverUuid, requestId, { method: 'GET', path: '/history' });
    const list = listOfAnswer(answer);
    if (list === undefined)
      throw new AgentRequestError(serverUuid, 'its answer to GET /history is not a list of tasks');
    return list;
  }

  /** Sets whether the agent takes tasks. @throws as `history` */
  async setPaused(serverUuid: string, requestId: string, isPaused: boolean): Promise<void> {
    await this.#ask(serverUuid, requestId, { method: 'POST', path: isPaused ? '/pause' : '/resume' });
  }

  async #ask(
    serverUuid: string,
    requestId: string,
    { method, path }: { method: 'GET' | 'POST'; path: string },
  ): Promise<AgentAnswer> {
    if (this.#requests >= MAX_REQUESTS) {
      this.#refused += 1;
      throw new TooManyAgentRequestsError(MAX_REQUESTS);
    }
    this.#requests += 1;
    try {
      const address = await this.#locate(serverUuid);
      const call = { address, serverUuid, requestId, method, path, timeoutMs: ANSWER_WITHIN_MS };
      const answer = await this.#http.call(call);
      if (answer.status >= 200 && answer.status < 300) return answer;
      throw new AgentRequestError(serverUuid, `it answered ${method} ${path} with HTTP ${answer.status}`);
    } catch (error) {
      if (!(error instanceof HttpError)) throw error;
      this.#noteFailure(serverUuid, error);
      throw new AgentRequestError(serverUuid, `it gave no answer to ${method} ${path}; the log says why`, error);
    } finally {
      this.#requests -= 1;
    }
  }

  async #locate(serverUuid: string): Promise<AgentAddress> {
    const { database, networks, allowLoopback } = this.#deps;
    const [sysinfo, sources] = await Promise.all([
      this.#deps.servers.sysinfoParts(serverUuid, ADDRESS_KEYS),
      readSources(database, serverUuid),
    ]);
    return agentAddress(serverUuid, sysinfo ?? {}, { sources, networks, allowLoopback });
  }

  #noteFailure(serverUuid: string, { kind, message }: HttpError): void {
    if (kind === 'given-up') return;
    this.#deps.log.info(
      { server_uuid: serverUuid, failure: kind, reason: message },
      'legacy agents: a call got no answer',
    );
  }

  async #locateWithRetries(serverUuid: string, signal: AbortSignal): Promise<AgentAddress> {
    for (let tries = 1; ; tries++) {
      try {
        return await this.#locate(serverUuid);
      } catch (error) {
        const isPassing = isTemporary(error) || (error instanceof NoAgentAddressError && error.mayPass);
        if (!isPassing || tries >= LOCATE_TRIES || signal.aborted) throw error;
        await this.#deps.clock.sleep(LOCATE_PAUSE_MS, signal);
      }
    }
  }
}

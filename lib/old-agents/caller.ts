/**
 * Old agents as the rest of an instance sees them: `Tasks` has tasks posted, the routes ask for history, pause and resume.
 * Any instance may ask any of them; there is no session. Made by `core.ts`.
 */
import { CnapiError, DatabaseUnavailableError, messageOf } from '../errors.ts';
import type { Queryable } from '../moray/database.ts';
import type { Clock } from '../ports/clock.ts';
import { kindOfAgent } from '../roster/roster.ts';
import { readRow } from '../roster/roster-store.ts';
import type { Servers } from '../servers/servers.ts';
import type { PostedEnd, PostedTask, TaskMessenger } from '../tasks/messenger.ts';
import { ADDRESS_KEYS, type AgentAddress, agentAddress } from './agent-address.ts';
import { AgentCallError, type AgentReply, Messenger, type MessengerLimits } from './messenger.ts';
import { endOfError, endOfReply, failure } from './task-reply.ts';

/** An old agent gave no answer, or not the one it should; the message says which agent, where, and what came. 500, as the reference. */
export class AgentRequestError extends CnapiError {
  constructor(serverUuid: string, message: string, cause?: unknown) {
    super('InternalError', 500, `The agent of server ${serverUuid}: ${message}`, { cause });
  }
}

/** This instance asks as many agents as it may at once. */
export class TooManyAgentRequestsError extends CnapiError {
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

export interface OldAgentCallerDeps {
  database: Queryable;
  servers: Pick<Servers, 'sysinfoParts'>;
  clock: Clock;
  version: string;
  /** Whether agents may be called on this machine's loopback: where this instance itself is reached there. */
  allowLoopback: boolean;
  limits?: Partial<MessengerLimits>;
}

/** Of history, pause and resume. */
const ANSWER_WITHIN_MS = 10_000;
const MAX_REQUESTS = 100;
/** Where its agent is; nothing was sent meanwhile. */
const LOCATE_TRIES = 30;
const LOCATE_PAUSE_MS = 1_000;

export class OldAgentCaller implements TaskMessenger {
  readonly #deps: OldAgentCallerDeps;
  readonly #messenger: Messenger;
  #requests = 0;
  #refused = 0;

  constructor(deps: OldAgentCallerDeps) {
    this.#deps = deps;
    this.#messenger = new Messenger(deps);
  }

  /** For metrics. */
  counters(): Record<string, number> {
    const { calls, failed, unread } = this.#messenger.stats();
    return {
      old_agents_calls_total: calls,
      old_agents_calls_failed_total: failed,
      old_agents_replies_unread_total: unread,
      old_agents_requests_refused_total: this.#refused,
    };
  }

  /** Whether the server runs with an old agent now. @throws DatabaseUnavailableError */
  async has(serverUuid: string): Promise<boolean> {
    const row = await readRow(this.#deps.database, serverUuid);
    return row !== undefined && kindOfAgent(row) === 'old';
  }

  async post(
    { id, serverUuid, name, params, requestId }: PostedTask,
    { timeoutMs, signal }: { timeoutMs: number; signal: AbortSignal },
  ): Promise<PostedEnd> {
    try {
      const address = await this.#locatePatiently(serverUuid, signal);
      const reply = await this.#messenger.call({
        address,
        serverUuid,
        requestId: requestId ?? id,
        method: 'POST',
        path: '/tasks',
        // As the reference's one map of parameters has it.
        body: { task: name, params: { server_uuid: serverUuid, ...params } },
        timeoutMs,
        signal,
      });
      return endOfReply(reply);
    } catch (error) {
      if (error instanceof AgentCallError) return endOfError(error);
      return failure(error instanceof CnapiError ? error.code : 'AgentUnreachable', messageOf(error));
    }
  }

  /** The agent's own list of its last tasks. @throws AgentRequestError, NoAgentAddressError, TooManyAgentRequestsError */
  async history(serverUuid: string, requestId: string): Promise<unknown[]> {
    const reply = await this.#ask(serverUuid, requestId, { method: 'GET', path: '/history' });
    const list = 'body' in reply ? parseList(reply.body) : undefined;
    if (list === undefined) throw new AgentRequestError(serverUuid, 'its answer to GET /history is no list of tasks');
    return list;
  }

  /** Whether it takes tasks. @throws as `history` */
  async setPaused(serverUuid: string, requestId: string, isPaused: boolean): Promise<void> {
    await this.#ask(serverUuid, requestId, { method: 'POST', path: isPaused ? '/pause' : '/resume' });
  }

  async #ask(
    serverUuid: string,
    requestId: string,
    { method, path }: { method: 'GET' | 'POST'; path: string },
  ): Promise<AgentReply> {
    if (this.#requests >= MAX_REQUESTS) {
      this.#refused += 1;
      throw new TooManyAgentRequestsError(MAX_REQUESTS);
    }
    this.#requests += 1;
    try {
      const address = await this.#locate(serverUuid);
      const call = { address, serverUuid, requestId, method, path, timeoutMs: ANSWER_WITHIN_MS };
      const reply = await this.#messenger.call(call);
      if (reply.status >= 200 && reply.status < 300) return reply;
      throw new AgentRequestError(serverUuid, `it answered ${method} ${path} with HTTP ${reply.status}`);
    } catch (error) {
      if (!(error instanceof AgentCallError)) throw error;
      throw new AgentRequestError(serverUuid, `${method} ${path}: ${error.message}`, error);
    } finally {
      this.#requests -= 1;
    }
  }

  async #locate(serverUuid: string): Promise<AgentAddress> {
    const sysinfo = await this.#deps.servers.sysinfoParts(serverUuid, ADDRESS_KEYS);
    return agentAddress(serverUuid, sysinfo ?? {}, this.#deps);
  }

  async #locatePatiently(serverUuid: string, signal: AbortSignal): Promise<AgentAddress> {
    for (let tries = 1; ; tries++) {
      try {
        return await this.#locate(serverUuid);
      } catch (error) {
        const mayPass = error instanceof DatabaseUnavailableError && tries < LOCATE_TRIES && !signal.aborted;
        if (!mayPass) throw error;
        await this.#deps.clock.sleep(LOCATE_PAUSE_MS, signal);
      }
    }
  }
}

function parseList(text: string): unknown[] | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

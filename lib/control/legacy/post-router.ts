/**
 * Posts a task to its server by the kind of the server: to its legacy agent, or, if the server has
 * no agent, to its Ur. Called by `LegacyDispatch`, created by `core.ts`.
 */
import { isTemporary, messageOf } from '../../platform/errors.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { kindOfAgent } from '../roster/status/authority-row.ts';
import { readRow } from '../roster/status/roster-store.ts';
import type { LegacyAgentApi, LegacyAgentTask } from './legacy-agent-api.ts';
import { failure, type PostedEnd } from './task-answer.ts';

interface PostRouterDeps {
  database: Queryable;
  legacyAgentApi: Pick<LegacyAgentApi, 'post'>;
  /** Undefined: this instance has no broker, so it reaches legacy agents alone. */
  urServers: Pick<LegacyAgentApi, 'post'> | undefined;
  clock: Clock;
}

/** Tries to read whether the server speaks Ur; nothing is sent meanwhile. */
const LOCATE_TRIES = 30;
const LOCATE_PAUSE_MS = 1_000;

export class PostRouter {
  readonly #deps: PostRouterDeps;

  constructor(deps: PostRouterDeps) {
    this.#deps = deps;
  }

  /** Settles as `LegacyAgentApi.post`: an error becomes the task's failure. */
  async post(task: LegacyAgentTask, options: { timeoutMs: number; signal: AbortSignal }): Promise<PostedEnd> {
    const { legacyAgentApi, urServers } = this.#deps;
    if (urServers === undefined) return legacyAgentApi.post(task, options);
    try {
      const recipient = (await this.#speaksUr(task.serverUuid, options.signal)) ? urServers : legacyAgentApi;
      return await recipient.post(task, options);
    } catch (error) {
      return failure('AgentUnreachable', messageOf(error));
    }
  }

  async #speaksUr(serverUuid: string, signal: AbortSignal): Promise<boolean> {
    for (let tries = 1; ; tries++) {
      try {
        const row = await readRow(this.#deps.database, serverUuid);
        return row !== undefined && kindOfAgent(row) === 'ur';
      } catch (error) {
        if (!isTemporary(error) || tries >= LOCATE_TRIES || signal.aborted) throw error;
        await this.#deps.clock.sleep(LOCATE_PAUSE_MS, signal);
      }
    }
  }
}

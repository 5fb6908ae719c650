/**
 * What a step of a workflow job changes of its server's row. The row has no fence of duties, so the
 * change reads the row, then looks whether the job is still at this step, and writes if nobody else
 * has written the row meanwhile. A former holder that is late therefore overwrites nothing that
 * came after it.
 */
import { isDeepStrictEqual } from 'node:util';
import { messageOf } from '../../platform/errors.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import { isJsonObject } from '../../protocol/json/bounded-json.ts';
import { reasonNotStorable } from '../../protocol/json/storable.ts';
import type { ServerChange } from '../servers/server-update.ts';
import { ServerNotFoundError, type Servers, SysinfoMismatchError } from '../servers/servers.ts';
import { type HeldWorkflowJob, readHeldWorkflowJob } from './step-store.ts';

const ETAG_RETRIES = 10;

export interface ServerChangesDeps {
  database: Queryable;
  servers: Pick<Servers, 'recordSysinfo' | 'update'>;
}

/** Another instance has carried the job on: it is elsewhere than this one has read. */
export class WorkflowJobMovedError extends Error {
  constructor(id: string) {
    super(`Workflow job ${id} was carried on by another instance`);
    this.name = 'WorkflowJobMovedError';
  }
}

export class ServerChanges {
  readonly #deps: ServerChangesDeps;

  constructor(deps: ServerChangesDeps) {
    this.#deps = deps;
  }

  /** @throws WorkflowJobMovedError, ServerNotFoundError */
  async change(job: HeldWorkflowJob, change: ServerChange): Promise<void> {
    await this.#deps.servers.update(job.serverUuid, change, ETAG_RETRIES, () => this.#checkHeld(job));
  }

  /**
   * Stores the sysinfo with which the agent has answered. Returns why it is not stored.
   * @throws WorkflowJobMovedError
   */
  async keepSysinfo(job: HeldWorkflowJob, sysinfo: unknown): Promise<string | undefined> {
    if (!isJsonObject(sysinfo)) return 'the agent answered without a sysinfo';
    const reason = reasonNotStorable(sysinfo);
    if (reason !== undefined) return `the agent answered with a sysinfo that ${reason}`;
    const admit = async (before: unknown) => {
      if (before === undefined) throw new ServerNotFoundError(job.serverUuid);
      await this.#checkHeld(job);
    };
    try {
      await this.#deps.servers.recordSysinfo(job.serverUuid, sysinfo, undefined, admit);
      return undefined;
    } catch (error) {
      if (error instanceof SysinfoMismatchError || error instanceof ServerNotFoundError) return messageOf(error);
      throw error;
    }
  }

  /** @throws WorkflowJobMovedError unless the job is still where this instance has read it */
  async #checkHeld({ id, state }: HeldWorkflowJob): Promise<void> {
    const now = await readHeldWorkflowJob(this.#deps.database, id);
    if (now === undefined || !isDeepStrictEqual(now.state, state)) throw new WorkflowJobMovedError(id);
  }
}

/**
 * The VMs of the zone. The agent of a server is the authority for its VMs; this registry has its
 * reports, and creates the tasks that create VMs. The database writes the rows: with the reports of
 * agents (`cnapi_store_vms_of`), and with the creation and the end of tasks
 * (`migrations/002-tasks.sql`). So the end of a task and the state of its VM are visible together.
 * Called by `routes/`.
 */

import { CnapiError } from '../../platform/errors.ts';
import type { BucketObject } from '../../platform/moray/bucket.ts';
import type { BucketPage, BucketStore } from '../../platform/moray/bucket-store.ts';
import { and, eq, startsWith } from '../../platform/moray/filter.ts';
import { ObjectNotFoundError } from '../../platform/moray/moray-errors.ts';
import type { Random } from '../../platform/random.ts';
import type { VmFilter } from '../../protocol/api/vms.ts';
import type { TaskRequest } from '../tasks/store/task.ts';
import { IdempotencyConflictError } from '../tasks/store/task-errors.ts';
import type { Tasks } from '../tasks/tasks.ts';
import type { VmDocument } from './vm.ts';
import { vmsBucket } from './vm-bucket.ts';

interface VmsDeps {
  buckets: BucketStore;
  tasks: Pick<Tasks, 'create' | 'findByIdempotencyKey'>;
  random: Random;
}

interface PageRequest {
  limit: number;
  after: string | undefined;
}

export class VmNotFoundError extends CnapiError {
  constructor(uuid: string) {
    super('ResourceNotFound', 404, `VM ${uuid} not found`);
  }
}

export class VmExistsError extends CnapiError {
  constructor(uuid: string, { server_uuid, state }: VmDocument, cause?: unknown) {
    const message = `VM ${uuid} exists on server ${server_uuid}, in the state ${state}, and was not created by this request`;
    super('VmExists', 409, message, { cause });
  }
}

/** Bytes of the values of a page; a single longer VM is a page of its own. */
const PAGE_BYTES = 1024 * 1024;
/** Each try finds that another request created or destroyed the VM meanwhile. */
const CREATE_TRIES = 3;

export class VmRegistry {
  readonly #deps: VmsDeps;

  constructor(deps: VmsDeps) {
    this.#deps = deps;
  }

  /** Completes the table of the bucket. Call it after the migrations. */
  prepare(): Promise<void> {
    return this.#deps.buckets.ensureBucket(vmsBucket);
  }

  /** Returns a page of VMs in order of uuid. */
  list({ alias, ...equal }: VmFilter, { limit, after }: PageRequest): Promise<BucketPage<VmDocument>> {
    const filters = Object.entries(equal).flatMap(([field, value]) => (value === undefined ? [] : [eq(field, value)]));
    if (alias !== undefined)
      filters.push(alias.endsWith('*') ? startsWith('alias', alias.slice(0, -1)) : eq('alias', alias));
    return this.#deps.buckets.page<VmDocument>(vmsBucket, and(...filters), { limit, after, bytes: PAGE_BYTES });
  }

  /** `serverUuid`: only if it is on that server. @throws VmNotFoundError */
  async get(uuid: string, serverUuid?: string): Promise<BucketObject<VmDocument>> {
    const found = await this.find(uuid);
    if (found === undefined || (serverUuid ?? found.value.server_uuid) !== found.value.server_uuid)
      throw new VmNotFoundError(uuid);
    return found;
  }

  async find(uuid: string): Promise<BucketObject<VmDocument> | undefined> {
    return this.#deps.buckets.get<VmDocument>(vmsBucket, uuid).catch((error: unknown) => {
      if (error instanceof ObjectNotFoundError) return undefined;
      throw error;
    });
  }

  /** The number of VMs by state. */
  counts(): Promise<Record<string, number>> {
    return this.#deps.buckets.countBy(vmsBucket, 'state');
  }

  /**
   * Creates the task that creates a VM. A request that is repeated gives the same task for as long
   * as its VM exists or is being created: the row of the VM holds the idempotency key of its task.
   * `create` creates the task of this request with the given idempotency key and the record of the
   * audit, and returns its id.
   * @throws VmExistsError; those of `Tasks.create`
   */
  async create(
    uuid: string,
    request: TaskRequest,
    create: (idempotencyKey: string) => Promise<string>,
  ): Promise<string> {
    for (let attempt = 1; ; attempt++) {
      const earlier = await this.#findByIdempotencyKey(uuid, request);
      if (earlier !== undefined) return earlier;
      try {
        return await create(this.#deps.random.uuid());
      } catch (error) {
        // Another request has created the VM since it was read.
        if (!(error instanceof CnapiError) || error.code !== 'VmExists' || attempt === CREATE_TRIES) throw error;
      }
    }
  }

  /** The task of an earlier request like this one, if there is one. @throws VmExistsError */
  async #findByIdempotencyKey(uuid: string, request: TaskRequest): Promise<string | undefined> {
    const found = await this.find(uuid);
    if (found === undefined) return undefined;
    const { value } = found;
    const createKey = value.control?.claim;
    if (value.server_uuid !== request.serverUuid || createKey === undefined) throw new VmExistsError(uuid, value);
    const known = await this.#deps.tasks
      .findByIdempotencyKey({ ...request, idempotencyKey: createKey })
      .catch((error: unknown) => {
        throw error instanceof IdempotencyConflictError ? new VmExistsError(uuid, value, error) : error;
      });
    if (known === undefined) throw new VmExistsError(uuid, value);
    return known;
  }
}

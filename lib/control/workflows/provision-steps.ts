/**
 * The steps of `vm-provision` that are not tasks: the ticket that locks the VM, and the release of
 * it and of the room. The ticket has the uuid of its job, and is created under a key: a holder that
 * is late gets the ticket as it is, also after its release. Owned by `workflow-runner.ts`.
 */
import type { Queryable } from '../../platform/postgres/database.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import type { Allocator } from '../placement/allocator.ts';
import { TicketNotFoundError } from '../waitlist/ticket-errors.ts';
import type { Waitlist } from '../waitlist/waitlist.ts';
import { checkJobAt } from './server-changes.ts';
import type { HeldWorkflowJob } from './step-store.ts';

export interface ProvisionStepsDeps {
  database: Queryable;
  waitlist: Pick<Waitlist, 'create' | 'release' | 'statuses'>;
  allocator: Pick<Allocator, 'release'>;
}

/** Longer than the steps may take. A job that ends releases its ticket. */
const TICKET_SECONDS = 24 * 60 * 60;
/** By these the VM counts while its ticket is open (docs/placement.md). */
const SIZES = ['owner_uuid', 'max_physical_memory', 'quota', 'cpu_cap'];

export class ProvisionSteps {
  readonly #deps: ProvisionStepsDeps;

  constructor(deps: ProvisionStepsDeps) {
    this.#deps = deps;
  }

  /** Whether the job has the lock. @throws TooManyTicketsError */
  async takeTicket(job: HeldWorkflowJob): Promise<boolean> {
    const uuid = await this.#createTicket(job);
    const status = (await this.#deps.waitlist.statuses([uuid])).get(uuid);
    if (status === 'active' || status === 'queued') return status === 'active';
    throw new Error(`its provision ticket ${uuid} ${status === undefined ? 'was deleted' : `is ${status}`}`);
  }

  /** @throws WorkflowJobMovedError, TooManyTicketsError */
  async release(job: HeldWorkflowJob): Promise<void> {
    const { database, waitlist, allocator } = this.#deps;
    // A later job of the same VM may have claimed the room.
    await checkJobAt(database, job);
    await allocator.release(vmOf(job), job.serverUuid);
    // If the ticket was not created yet, no former holder can create it after this.
    const ticket = await this.#createTicket(job);
    await waitlist.release(ticket).catch((error: unknown) => {
      if (!(error instanceof TicketNotFoundError)) throw error;
    });
  }

  async #createTicket(job: HeldWorkflowJob): Promise<string> {
    const { id, serverUuid, params, reqId, actor } = job;
    const { uuid } = await this.#deps.waitlist.create({
      ...{ uuid: id, idempotencyKey: `workflow job ${id}` },
      ...{ serverUuid, scope: 'vm', id: vmOf(job), action: 'provision', extra: sizesOf(params), reqId, actor },
      expiry: { expiresInSeconds: TICKET_SECONDS },
    });
    return uuid;
  }
}

function vmOf({ id, vmUuid }: HeldWorkflowJob): string {
  if (vmUuid === undefined) throw new Error(`workflow job ${id} names no VM`);
  return vmUuid;
}

const sizesOf = (params: JsonObject): JsonObject =>
  Object.fromEntries(SIZES.filter((name) => params[name] !== undefined).map((name) => [name, params[name]]));

/**
 * The steps of `vm-provision` that are not tasks: the ticket that locks the VM, and its release.
 * The ticket has the uuid of its job, and is created under a key: a holder that is late gets the
 * ticket as it is, also after its release. The room needs no step: the job holds it from its
 * creation to its end (lib/control/placement/migrations/005-jobs.sql). Owned by
 * `workflow-runner.ts`.
 */
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { TicketNotFoundError } from '../waitlist/ticket-errors.ts';
import type { Waitlist } from '../waitlist/waitlist.ts';
import type { HeldWorkflowJob } from './step-store.ts';

export interface ProvisionStepsDeps {
  waitlist: Pick<Waitlist, 'create' | 'release' | 'statuses'>;
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

  /** @throws TooManyTicketsError */
  async release(job: HeldWorkflowJob): Promise<void> {
    // If the ticket was not created yet, no former holder can create it after this.
    const ticket = await this.#createTicket(job);
    await this.#deps.waitlist.release(ticket).catch((error: unknown) => {
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

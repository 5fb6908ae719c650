/**
 * I3 and I6 for VMs: no VM is created on two servers, a task that created one tells the truth, and
 * what is stored of a server's VMs becomes what is on the server.
 */
import type { ReportRow, TaskRow } from './changes.ts';
import type { SimPostgres } from './sim-postgres.ts';
import type { World } from './world.ts';

export class VmChecks {
  readonly #world: World;
  /** The states of the VMs that are stored, by server. */
  readonly #stored = new Map<string, string>();
  /** The server on which a task created each VM, unless a task has destroyed it since. */
  readonly #createdOn = new Map<string, string>();
  created = 0;
  changed = 0;

  constructor(world: World) {
    this.#world = world;
  }

  reportChanged(after: ReportRow | null): void {
    if (after !== null) this.#stored.set(after.server_uuid, statesOf(Object.values(after.vms)));
  }

  /** A task about a VM has ended. */
  taskEnded({ id, name, vm, server_uuid, outcome }: TaskRow): void {
    if (vm === null || outcome !== 'complete') return;
    this.changed += 1;
    if (name === 'machine_destroy' && this.#createdOn.get(vm) === server_uuid) this.#createdOn.delete(vm);
    if (name !== 'machine_create') return;
    this.created += 1;
    const other = this.#createdOn.get(vm);
    if (other !== undefined && other !== server_uuid)
      this.#world.violated('I3', `VM ${vm} was created on ${this.#name(other)} and on ${this.#name(server_uuid)}`);
    this.#createdOn.set(vm, server_uuid);
    if (this.#world.agents.some((agent) => agent.uuid === server_uuid && !agent.hadVms.has(vm)))
      this.#world.violated('I3', `task ${id} is complete, but ${this.#name(server_uuid)} never had VM ${vm}`);
  }

  /** Servers whose VMs are stored in another way than they are. */
  get unlike(): string[] {
    return this.#world.agents.flatMap(({ name, uuid, vms }) => {
      const [is, shown] = [statesOf([...vms.values()]), this.#stored.get(uuid) ?? ''];
      return is === shown ? [] : [`the VMs of ${name} are [${is}] and stored as [${shown}]`];
    });
  }

  /** Checks at the end that the rows of VMs, which lists show, are those of the reports. */
  async complaints(postgres: SimPostgres): Promise<string[]> {
    if (!this.#world.hasVms) return [];
    const { rows } = await postgres.read<{ uuid: string; server: string; state: string }>(
      `select _key as uuid, _value ->> 'server_uuid' as server, _value ->> 'state' as state from cnapi_vms`,
    );
    return this.#world.agents.flatMap(({ name, uuid, vms }) => {
      const [is, listed] = [statesOf([...vms.values()]), statesOf(rows.filter(({ server }) => server === uuid))];
      return is === listed ? [] : [`the VMs of ${name} are [${is}] and listed as [${listed}]`];
    });
  }

  #name(server: string): string {
    return this.#world.nameOfServer(server);
  }
}

const statesOf = (vms: readonly { uuid: string; state: string }[]): string =>
  vms
    .map(({ uuid, state }) => `${uuid} ${state}`)
    .sort()
    .join(', ');

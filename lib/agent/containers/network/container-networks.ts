/**
 * Connects containers to bridges of the machine. Each interface is one end of a veth pair in the
 * network namespace of the container; the other end is a port of its bridge. Names on the machine
 * derive from the id, so nothing is recorded, and any agent can remove what a killed one has left.
 *
 * Containers on one bridge reach each other, and what else the bridge leads to. The bridge does not
 * check which MAC and IP addresses a container uses, and there is no address translation here.
 */
import type { ContainerNic, ContainerSpec } from '../container.ts';
import { ContainerError } from '../container-errors.ts';
import { deleteLinks, findLink, type NetworkLink, runIp } from './ip.ts';
import { hostCommands, hostLinkNames, macOf, namespaceCommands } from './links.ts';

interface ContainerNetworksDeps {
  /** Tells this agent from others of the machine, for example its data directory. */
  scope: string;
  /** Names of bridges that containers may use. */
  bridges: readonly string[];
  /**
   * A bridge that the agent makes if it is not there, with its address, for example 10.0.0.1/24.
   */
  ownBridge?: { name: string; address: string } | undefined;
}

export class ContainerNetworks {
  readonly #deps: ContainerNetworksDeps;

  constructor(deps: ContainerNetworksDeps) {
    this.#deps = deps;
  }

  /**
   * Makes the agent's own bridge, if it has one. It stays when the agent stops. @throws
   * ContainerError
   */
  async open(): Promise<void> {
    const { scope, ownBridge } = this.#deps;
    if (ownBridge === undefined) return;
    const { name, address } = ownBridge;
    const mac = macOf({ scope, id: name, index: 0 });
    const found = await findLink(name);
    if (found !== undefined) requireBridge(name, found);
    await runIp({
      lines: [
        ...(found === undefined ? [['link', 'add', 'dev', name, 'address', mac, 'type', 'bridge']] : []),
        ['address', 'replace', address, 'dev', name, ...(address.includes(':') ? ['nodad'] : [])],
        ['link', 'set', 'dev', name, 'up'],
      ],
    });
  }

  /**
   * Creates the interfaces of the container in the namespace of the process, and removes those of
   * an earlier run. Their names must be free there. @throws ContainerError; then no interface is
   * left
   */
  async attach(spec: ContainerSpec, _run: number, pid: number): Promise<void> {
    const { id, nics } = spec;
    if (nics.length === 0) return;
    await this.detach(id);
    try {
      for (const [index, nic] of nics.entries()) await this.#connect(nic, { id, index, pid });
    } catch (error) {
      await this.detach(id).catch(() => undefined);
      throw error;
    }
  }

  /** Removes all interfaces of a container. Idempotent. @throws ContainerError if one is left */
  async detach(id: string): Promise<void> {
    await deleteLinks(hostLinkNames(this.#deps.scope, id));
  }

  async #connect(nic: ContainerNic, { id, index, pid }: { id: string; index: number; pid: number }): Promise<void> {
    const { scope } = this.#deps;
    const { mtu } = await this.#bridge(nic.bridge);
    await runIp({ lines: hostCommands(nic, { scope, id, index }, { pid, mtu }) });
    await runIp({ lines: namespaceCommands(nic), pid });
  }

  async #bridge(name: string): Promise<NetworkLink> {
    const { bridges } = this.#deps;
    if (!bridges.includes(name))
      throw new ContainerError(`The bridge ${name} is not allowed by this agent; choose an allowed one`);
    const found = await findLink(name);
    if (found === undefined)
      throw new ContainerError(`There is no bridge ${name} on this server; create it, or choose another one`);
    return requireBridge(name, found);
  }
}

function requireBridge(name: string, link: NetworkLink): NetworkLink {
  if (link.linkinfo?.info_kind === 'bridge') return link;
  throw new ContainerError(`The interface ${name} of this server is not a bridge; choose another one`);
}

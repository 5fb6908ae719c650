/** Callers that are trusted because of their address. Pure. */
import { Networks } from '../../platform/network/networks.ts';
import type { Role } from '../../protocol/api/contract/roles.ts';
import type { Actor } from './token.ts';

type NetworkRole = Exclude<Role, 'admin'>;

export interface TrustedNetwork {
  /** The network as the configuration writes it. */
  text: string;
  roles: readonly NetworkRole[];
}

export class TrustedNetworks {
  readonly #trusted: { networks: Networks; text: string; roles: readonly NetworkRole[] }[];

  /** Each of them has passed `reasonNotANetwork`. */
  constructor(trusted: readonly TrustedNetwork[]) {
    this.#trusted = trusted.map(({ text, roles }) => ({ networks: new Networks([text]), text, roles }));
  }

  /**
   * The actor for a caller at `address` without a token; undefined outside the trusted networks. An
   * address in several networks has the roles of all.
   */
  actorAt(address: string): Actor | undefined {
    const around = this.#trusted.filter(({ networks }) => networks.contain(address));
    if (around.length === 0) return undefined;
    const roles = [...new Set(around.flatMap((one) => one.roles))];
    return { name: `network ${around.map(({ text }) => text).join(' and ')}`, roles };
  }
}

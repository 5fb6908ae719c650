/** The NICs of a server as command lines name them: `eth0=admin,external`. Pure. */
import type { NicChange } from '../../protocol/nics.ts';
import { UsageError } from '../terminal/command-errors.ts';

export const NIC_HELP = 'a NIC is an interface or a MAC address, and its tags are separated by commas; may be repeated';

/** A NIC in the sysinfo of a server. */
export interface ShownNic {
  name: string;
  mac: string;
  tags: readonly string[];
  isUp: boolean;
}

interface WithSysinfo {
  sysinfo?: unknown;
}

/** The NICs that the sysinfo names, which an agent may have sent in any form. */
export function parseNics({ sysinfo }: WithSysinfo): ShownNic[] {
  const interfaces = membersOf(membersOf(sysinfo)['Network Interfaces']);
  return Object.entries(interfaces).map(([name, value]) => {
    const nic = membersOf(value);
    const tags = nic['NIC Names'];
    return {
      name,
      mac: String(nic['MAC Address'] ?? ''),
      tags: Array.isArray(tags) ? tags.map(String) : [],
      isUp: nic['Link Status'] === 'up',
    };
  });
}

const membersOf = (value: unknown): Record<string, unknown> =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};

/**
 * @throws UsageError for a text that is not NIC=TAGS, or an interface that the server does not have
 */
export function parseNicChanges(texts: readonly string[], server: WithSysinfo): NicChange[] {
  const nics = parseNics(server);
  return texts.map((text) => {
    const [, name, tags] = /^([^=]+)=([\w,]*)$/.exec(text) ?? [];
    if (name === undefined || tags === undefined)
      throw new UsageError(`${text} is not NIC=TAG,TAG, such as eth0=admin,external`);
    const mac = name.includes(':') ? name : nics.find((nic) => nic.name === name)?.mac;
    if (mac === undefined)
      throw new UsageError(`The server has no NIC ${name}; it has ${nics.map((nic) => nic.name).join(', ') || 'none'}`);
    return { mac, nic_tags_provided: tags.split(',').filter((tag) => tag !== '') };
  });
}

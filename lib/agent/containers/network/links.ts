/** Names and addresses of the links of a container, and the commands that make them. Pure. */
import { createHash } from 'node:crypto';
import type { ContainerNic } from '../container.ts';
import { MAX_NICS } from '../specification/nics.ts';

interface LinkId {
  /** Tells agents of one machine apart, and the containers of each. */
  scope: string;
  id: string;
  index: number;
}

const PREFIX = 'cn';
/**
 * 60 bits of the hash. With the prefix and the index, a name has the 15 characters that the kernel
 * allows.
 */
const HASH_CHARS = 12;
const DIGITS = 'abcdefghijklmnopqrstuvwxyz234567';

/** The name of the machine's end, derived from the container, so that every agent finds it. */
function hostLinkName({ scope, id, index }: LinkId): string {
  const bytes = digestOf('link', scope, id);
  const hash = Array.from({ length: HASH_CHARS }, (_, at) => DIGITS[(bytes[at] ?? 0) % DIGITS.length]).join('');
  return `${PREFIX}${hash}${index}`;
}

/** Names of all links that a container may have on the machine. */
export const hostLinkNames = (scope: string, id: string): string[] =>
  Array.from({ length: MAX_NICS }, (_, index) => hostLinkName({ scope, id, index }));

/** Locally administered, and the same in each run. */
export function macOf({ scope, id, index }: LinkId): string {
  return macFrom(0x02, digestOf('mac', scope, id, `${index}`));
}

/**
 * A bridge without a configured MAC address takes the lowest one of its ports. These addresses are
 * higher than those of devices, so new and removed containers do not change it.
 */
function hostMacOf({ scope, id, index }: LinkId): string {
  return macFrom(0xfe, digestOf('host-mac', scope, id, `${index}`));
}

/** A pair whose other end is made in the namespace of the process, under its name there. */
export function hostCommands(nic: ContainerNic, link: LinkId, at: { pid: number; mtu: number }): string[][] {
  const name = hostLinkName(link);
  const inside = ['name', nic.name, 'address', nic.mac ?? macOf(link), 'mtu', `${at.mtu}`, 'netns', `${at.pid}`];
  return [
    ['link', 'add', 'dev', name, 'mtu', `${at.mtu}`, 'address', hostMacOf(link), 'type', 'veth', 'peer', ...inside],
    // The machine must not send anything to the bridge through this link.
    ['link', 'set', 'dev', name, 'addrgenmode', 'none'],
    ['link', 'set', 'dev', name, 'alias', `cnapi:${link.id}`],
    ['link', 'set', 'dev', name, 'master', nic.bridge, 'up'],
  ];
}

export function namespaceCommands({ name, addresses, gateway }: ContainerNic): string[][] {
  return [
    // Without duplicate address detection: a program may bind to the address immediately.
    ...addresses.map((one) => ['address', 'add', one, 'dev', name, ...(one.includes(':') ? ['nodad'] : [])]),
    ['link', 'set', 'dev', name, 'up'],
    ...(gateway === undefined ? [] : [['route', 'add', 'default', 'via', gateway, 'dev', name]]),
  ];
}

const digestOf = (...words: string[]): Buffer => createHash('sha256').update(JSON.stringify(words)).digest();

function macFrom(first: number, digest: Buffer): string {
  return Array.from([first, ...digest.subarray(0, 5)], (byte) => byte.toString(16).padStart(2, '0')).join(':');
}

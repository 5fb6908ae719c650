/**
 * What the control plane has told this server about itself, beyond what the machine knows: whether
 * it is set up, and the NIC tags of its NICs. Pure; `settings-keeper.ts` stores it.
 *
 * Whether a server is set up:
 *
 *     (no record) ── --needs-setup ──▶ not set up ── server_setup ──▶ set up
 *          │                              ▲                             │
 *          └── without that option: set up └── server_factory_reset ─────┘
 */
import { MAX_NIC_TAGS, type NicAction, type NicChange } from '../../protocol/nics.ts';
import type { Sysinfo } from '../machine/machine.ts';

/** What the operator of the machine allows. */
export interface SetupRules {
  /** A set-up may name the machine, and run a script on it. */
  allowsSetup: boolean;
  /** The program that resets the machine; undefined: nothing does. */
  resetProgram: string | undefined;
}

/** The NIC tags by MAC address, in lower case. */
export type NicTags = Readonly<Record<string, readonly string[]>>;

type Refusal = { refusal: 'unknown' | 'full'; mac: string };

/** The kept tags after a change. `present`: of each NIC of this machine. */
export function changeNicTags(
  kept: NicTags,
  { action, nics, present }: { action: NicAction; nics: readonly NicChange[]; present: NicTags },
): { tags: NicTags } | Refusal {
  const changed: Record<string, readonly string[]> = {};
  for (const { mac, nic_tags_provided: named } of nics) {
    const before = present[mac];
    if (before === undefined) return { refusal: 'unknown', mac };
    const after = tagsAfter(before, action, named);
    if (after.length > MAX_NIC_TAGS) return { refusal: 'full', mac };
    changed[mac] = after;
  }
  return { tags: { ...kept, ...changed } };
}

function tagsAfter(before: readonly string[], action: NicAction, named: readonly string[]): readonly string[] {
  switch (action) {
    case 'update':
      return [...new Set([...before, ...named])];
    case 'replace':
      return named;
    case 'delete':
      return before.filter((tag) => !named.includes(tag));
    default:
      return action satisfies never;
  }
}

const INTERFACES = 'Network Interfaces';
const NAMES = 'NIC Names';

/** The NIC tags in this sysinfo. */
export const presentNicTags = (sysinfo: Sysinfo): NicTags =>
  Object.fromEntries(Object.values(interfacesOf(sysinfo)).map((nic) => [macOf(nic), (nic[NAMES] ?? []) as string[]]));

const macOf = (nic: Sysinfo): string => String(nic['MAC Address']).toLowerCase();

/**
 * The sysinfo with the NIC tags, and with whether the server is set up; undefined: it does not say.
 */
export function withSettings(sysinfo: Sysinfo, { tags, isSetUp }: { tags: NicTags; isSetUp: boolean | undefined }) {
  const { Setup: _, ...rest } = sysinfo;
  const tagged = Object.entries(interfacesOf(sysinfo)).map(([name, nic]) => {
    const names = tags[macOf(nic)];
    return [name, names === undefined ? nic : { ...nic, [NAMES]: names }];
  });
  const setup = isSetUp === undefined ? {} : { Setup: String(isSetUp) };
  return { ...rest, [INTERFACES]: Object.fromEntries(tagged), ...setup } as Sysinfo;
}

const interfacesOf = (sysinfo: Sysinfo) => (sysinfo[INTERFACES] ?? {}) as Record<string, Sysinfo>;

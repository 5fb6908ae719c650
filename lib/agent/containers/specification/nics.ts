/** The interfaces of a specification, each by itself and all together. Pure. */
import { z } from 'zod';
import { definedFields } from '../../../platform/defined-fields.ts';
import type { ContainerNic } from '../container.ts';
import { familyOf, hostAddress, interfaceAddress, reaches } from './addresses.ts';
import { interfaceName, mac } from './words.ts';

/** The clean-up of a container's network looks for this number of links. */
export const MAX_NICS = 8;
const MAX_ADDRESSES = 16;

type Complain = (path: (string | number)[], message: string) => void;

const nic = z
  .strictObject({
    name: interfaceName,
    bridge: interfaceName,
    mac: mac.optional(),
    addresses: z.array(interfaceAddress).max(MAX_ADDRESSES).default([]),
    gateway: hostAddress.optional(),
  })
  .superRefine(({ addresses, gateway }, context) => {
    if (gateway === undefined || addresses.some((address) => reaches(address, gateway))) return;
    const message =
      'is not another machine in the network of one of the addresses; choose one that the interface reaches';
    context.addIssue({ code: 'custom', path: ['gateway'], message });
  })
  .transform(
    ({ name, bridge, addresses, ...rest }): ContainerNic => ({
      name,
      bridge,
      addresses,
      ...definedFields({ mac: rest.mac, gateway: rest.gateway }),
    }),
  );

export const nics = z
  .array(nic)
  .max(MAX_NICS)
  .superRefine((all, context) => {
    const complain: Complain = (path, message) => context.addIssue({ code: 'custom', path, message });
    refuseRepeated(all, complain);
    refuseSecondGateways(all, complain);
  })
  .default([]);

function refuseRepeated(all: readonly ContainerNic[], complain: Complain): void {
  const seen = new Set<string>();
  const check = (kind: string, value: string, path: (string | number)[]): void => {
    if (seen.has(`${kind} ${value}`)) complain(path, `repeats ${value}; each ${kind} must be there once`);
    seen.add(`${kind} ${value}`);
  };
  all.forEach(({ name, mac: one, addresses }, index) => {
    check('name', name, [index, 'name']);
    if (one !== undefined) check('MAC', one, [index, 'mac']);
    for (const [at, address] of addresses.entries())
      check('address', address.split('/')[0] ?? '', [index, 'addresses', at]);
  });
}

/** A second default route of the same family would be refused by the kernel. */
function refuseSecondGateways(all: readonly ContainerNic[], complain: Complain): void {
  const seen = new Set<string>();
  all.forEach(({ gateway }, index) => {
    if (gateway === undefined) return;
    const family = familyOf(gateway) ?? '';
    if (seen.has(family)) complain([index, 'gateway'], 'is a second one of its family; keep one of them');
    seen.add(family);
  });
}

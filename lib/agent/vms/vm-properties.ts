/** The properties of a VM after its creation and after an update. Pure. */
import { isIPv4 } from 'node:net';
import type { z } from 'zod';
import { definedFields, withoutUndefined } from '../../platform/defined-fields.ts';
import type { FieldError } from '../../platform/errors.ts';
import type { Random } from '../../platform/random.ts';
import {
  CHANGEABLE_FIELDS,
  MAX_VM_NICS,
  MAX_VM_RESOLVERS,
  VM_DEFAULTS,
  type VmCreate,
  type VmNetwork,
  type VmNic,
  type VmNicRequest,
  type VmProperties,
  type VmUpdate,
  vmMetadata,
  vmTags,
} from '../../protocol/vms.ts';
import { InvalidVmError } from './vm-errors.ts';

/** @throws InvalidVmError */
export function buildVmProperties(request: VmCreate, random: Random): VmProperties {
  const { uuid, brand, image_uuid, customer_metadata, internal_metadata, tags } = request;
  return {
    ...VM_DEFAULTS,
    hostname: uuid,
    resolvers: [],
    ...changeableFields(request),
    brand,
    image_uuid,
    customer_metadata,
    internal_metadata,
    tags,
    nics: withNics([], request.nics, random),
  };
}

/** @throws InvalidVmError */
export function updatedProperties(current: VmProperties, update: VmUpdate, random: Random): VmProperties {
  const { customer_metadata: customer, internal_metadata: internal, tags } = current;
  return {
    ...current,
    ...changeableFields(update),
    customer_metadata: changed(customer, {
      field: 'set_customer_metadata',
      schema: vmMetadata,
      set: update.set_customer_metadata,
      remove: update.remove_customer_metadata,
    }),
    internal_metadata: changed(internal, {
      field: 'set_internal_metadata',
      schema: vmMetadata,
      set: update.set_internal_metadata,
      remove: update.remove_internal_metadata,
    }),
    tags: changed(tags, {
      field: 'set_tags',
      schema: vmTags,
      set: update.set_tags,
      remove: update.remove_tags,
    }),
    nics: updatedNics(current.nics, update, random),
  };
}

/** The update of a VM on a network that has changed. */
export function networkUpdate(
  { nics, resolvers }: Pick<VmProperties, 'nics' | 'resolvers'>,
  before: VmNetwork,
  after: VmNetwork,
): VmUpdate {
  const kept = resolvers.filter((one) => before.resolvers?.includes(one) !== true);
  const added = (after.resolvers ?? []).filter((one) => !kept.includes(one));
  const on = nics.filter(({ network_uuid }) => network_uuid === before.uuid);
  return {
    resolvers: [...added, ...kept].slice(0, MAX_VM_RESOLVERS),
    update_nics: on.map(({ mac }) => ({ mac, ...definedFields({ gateway: after.gateway }) })),
  };
}

const changeableFields = (request: VmCreate | VmUpdate): Partial<VmProperties> =>
  withoutUndefined(Object.fromEntries(CHANGEABLE_FIELDS.map((name) => [name, request[name]])));

interface RecordChange<Value> {
  /** Name of the update's field that adds entries; errors name it. */
  field: string;
  /** Validates the record after the change. */
  schema: z.ZodType<Record<string, Value>>;
  set: Readonly<Record<string, Value>> | undefined;
  remove: readonly string[] | undefined;
}

/**
 * The limits apply to the VM's whole record, not to one update. A removal alone is always allowed.
 */
function changed<Value>(
  current: Readonly<Record<string, Value>>,
  { field, schema, set, remove = [] }: RecordChange<Value>,
): Record<string, Value> {
  const removed = new Set(remove);
  const kept = Object.fromEntries(Object.entries(current).filter(([key]) => !removed.has(key)));
  if (set === undefined) return kept;
  const all = { ...kept, ...set };
  const [issue] = schema.safeParse(all).error?.issues ?? [];
  if (issue !== undefined)
    throw new InvalidVmError([{ field, code: 'Invalid', message: `with what the VM has ${issue.message}` }]);
  return all;
}

function updatedNics(current: readonly VmNic[], update: VmUpdate, random: Random): VmNic[] {
  const { add_nics: add = [], update_nics: changes = [], remove_nics: removed = [] } = update;
  const errors: FieldError[] = [];
  const missing = (field: string, mac: string) =>
    errors.push({ field, code: 'Invalid', message: `names no interface of the VM: ${mac}` });
  removed.forEach((mac, index) => {
    if (!current.some((nic) => nic.mac === mac)) missing(`remove_nics.${index}`, mac);
  });
  const left = current.filter(({ mac }) => !removed.includes(mac));
  changes.forEach(({ mac }, index) => {
    if (!left.some((nic) => nic.mac === mac)) missing(`update_nics.${index}.mac`, mac);
  });
  if (errors.length > 0) throw new InvalidVmError(errors);
  const kept = left.map((nic) => {
    const change = changes.find(({ mac }) => mac === nic.mac);
    if (change === undefined) return nic;
    const { nic_tag = nic.nic_tag, ...rest } = change;
    return nicOf({ ...withoutReplaced(nic, rest), ...rest, nic_tag }, nic);
  });
  return withNics(kept, add, random);
}

/**
 * An address has two forms, `ip` and `ips`; the form that the update gives replaces the other one.
 */
function withoutReplaced(one: VmNic, change: Omit<VmNicRequest, 'nic_tag'>): Omit<VmNic, 'vlan_id'> {
  const { ip: _ip, netmask: _mask, gateway: _gateway, gateways: _gateways, vlan_id: _vlan, ...rest } = one;
  const ips = change.ips === undefined && change.ip !== undefined ? [] : one.ips;
  const isMoved = change.gateway !== undefined || change.gateways !== undefined;
  return { ...rest, ips, ...(isMoved ? {} : definedFields({ gateways: one.gateways })) };
}

function withNics(current: readonly VmNic[], added: readonly VmNicRequest[], random: Random): VmNic[] {
  const all = [...current];
  for (const one of added) {
    const taken = (name: string) => all.some((other) => other.interface === name);
    const free = Array.from({ length: MAX_VM_NICS + 1 }, (_, index) => `net${index}`).find((name) => !taken(name));
    all.push(nicOf(one, { interface: free ?? 'net0', mac: randomMac(random) }));
  }
  if (all.length > MAX_VM_NICS)
    throw new InvalidVmError([{ field: 'nics', code: 'Invalid', message: `are more than ${MAX_VM_NICS}` }]);
  const primary = Math.max(
    all.findLastIndex((one) => one.primary === true),
    0,
  );
  return all.map(({ primary: _primary, ...one }, index) => (index === primary ? { ...one, primary: true } : one));
}

function nicOf(request: VmNicRequest, usual: { interface: string; mac: string }): VmNic {
  const [first] = addressesOf(request);
  const [ip, prefix] = first?.split('/') ?? [];
  const gateways = request.gateways ?? (request.gateway === undefined ? undefined : [request.gateway]);
  return {
    interface: request.interface ?? usual.interface,
    mac: request.mac ?? usual.mac,
    nic_tag: request.nic_tag,
    vlan_id: 0,
    ips: addressesOf(request),
    ...definedFields({
      ip,
      netmask: ip !== undefined && isIPv4(ip) ? netmaskOf(Number(prefix)) : undefined,
      gateway: gateways?.[0],
      gateways,
      primary: request.primary,
      network_uuid: request.network_uuid,
    }),
  };
}

function addressesOf({ ips, ip, netmask }: Pick<VmNicRequest, 'ips' | 'ip' | 'netmask'>): string[] {
  if (ips !== undefined && ips.length > 0) return ips;
  if (ip === undefined) return [];
  return [netmask === undefined ? ip : `${ip}/${bitsOf(netmask)}`];
}

const BITS = 32;

/** -1 for an invalid netmask; then the address is refused. */
function bitsOf(netmask: string): number {
  if (!isIPv4(netmask)) return -1;
  const mask = netmask.split('.').reduce((value, part) => ((value << 8) | Number(part)) >>> 0, 0);
  const bits = Math.clz32(~mask);
  return mask === maskOf(bits) ? bits : -1;
}

function netmaskOf(prefix: number): string | undefined {
  if (!(prefix >= 0 && prefix <= BITS)) return undefined;
  const mask = maskOf(prefix);
  return [24, 16, 8, 0].map((shift) => (mask >>> shift) & 0xff).join('.');
}

/** A shift by 32 bits would be a shift by none. */
const maskOf = (prefix: number): number => (prefix === 0 ? 0 : (-1 << (BITS - prefix)) >>> 0);

/** A MAC address of Triton's range for VMs. */
function randomMac(random: Random): string {
  const digits = random.uuid().replaceAll('-', '').slice(0, 6);
  return `90:b8:d0:${digits.slice(0, 2)}:${digits.slice(2, 4)}:${digits.slice(4, 6)}`;
}

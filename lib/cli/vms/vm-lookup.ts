/** Lists VMs, and finds one by its uuid or alias. Used by `cnapi vm`. */
import type { CnapiClient } from '../../client/client.ts';
import { pages } from '../../client/pages.ts';
import { isUuid } from '../../protocol/api/contract/rules.ts';
import { type StoredVm, type VmFilter, vmContracts } from '../../protocol/api/vms.ts';
import { isPrefix, serverLabels } from '../lookup/find.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { escapeControls } from '../terminal/escape-controls.ts';

/** How to name a VM, for help texts. */
export const VM_TEXT = 'its uuid, the beginning of one, or its alias';

/** All that match, in order of uuid. */
export function listVms(client: CnapiClient, filter: VmFilter): Promise<StoredVm[]> {
  const found = pages(async (page) => {
    const { vms, next } = await client.ask(vmContracts.ListVms, { ...filter, ...page });
    return { items: vms, next };
  });
  return Array.fromAsync(found);
}

/**
 * Finds a VM by its uuid, its alias, or the beginning of its uuid. @throws UsageError if not
 * exactly one matches
 */
export async function findVm(client: CnapiClient, text: string): Promise<StoredVm> {
  if (isUuid(text)) return client.ask(vmContracts.GetListedVm, { vm_uuid: text });
  const named = text.endsWith('*') ? [] : await listVms(client, { alias: text });
  // A text can be the alias of one VM and the beginning of another one's uuid. It is then
  // ambiguous.
  const begun = await vmsWithPrefix(client, text);
  const [found, ...others] = [...named, ...begun.filter(({ uuid }) => named.every((one) => one.uuid !== uuid))];
  if (found === undefined) throw new UsageError(`There is no VM ${escapeControls(text)}; cnapi vm list lists them`);
  if (others.length === 0) return found;
  const labelOf = await serverLabels(client, [found, ...others]);
  const each = [found, ...others]
    .slice(0, 20)
    .map(({ uuid, server_uuid }) => `${uuid} on ${escapeControls(labelOf(server_uuid))}`);
  throw new UsageError(`There are several VMs ${escapeControls(text)}; give the uuid of one: ${each.join(', ')}`);
}

/** Tables show this many characters of a uuid. */
const LEAST_PREFIX = 8;
const HEX_DIGITS = 32;
const AT_MOST = 3;

/** Some of the VMs whose uuids begin with this text: the list is in order of uuid. */
async function vmsWithPrefix(client: CnapiClient, text: string): Promise<StoredVm[]> {
  if (text.length < LEAST_PREFIX || !isPrefix(text)) return [];
  const prefix = text.toLowerCase();
  const first = BigInt(`0x${prefix.replaceAll('-', '').padEnd(HEX_DIGITS, '0')}`);
  const after = first === 0n ? undefined : uuidOf(first - 1n);
  const { vms } = await client.ask(vmContracts.ListVms, { limit: AT_MOST, after });
  return vms.filter(({ uuid }) => uuid.startsWith(prefix));
}

const uuidOf = (number: bigint): string =>
  number
    .toString(16)
    .padStart(HEX_DIGITS, '0')
    .replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');

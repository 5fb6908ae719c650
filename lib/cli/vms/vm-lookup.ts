/** Lists VMs, and finds one by its uuid or alias. Used by `cnapi vm`. */
import type { CnapiClient } from '../../client/client.ts';
import { isUuid, MAX_LIST } from '../../protocol/api/contract/rules.ts';
import { type StoredVm, vmContracts } from '../../protocol/api/vms.ts';
import { serverLabels } from '../lookup/find.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { UsageError } from '../terminal/usage-error.ts';

interface VmFilter {
  server_uuid?: string | undefined;
  owner_uuid?: string | undefined;
  image_uuid?: string | undefined;
  state?: string | undefined;
  alias?: string | undefined;
}

/** All that match, in order of uuid. */
export async function listVms(client: CnapiClient, filter: VmFilter): Promise<StoredVm[]> {
  const found: StoredVm[] = [];
  for (let after: string | undefined; ; ) {
    const page = await client.ask(vmContracts.ListVms, { ...filter, limit: MAX_LIST, after });
    found.push(...page.vms);
    after = page.next;
    if (after === undefined) return found;
  }
}

/** @throws UsageError when there is none, or more than one */
export async function findVm(client: CnapiClient, text: string): Promise<StoredVm> {
  if (isUuid(text)) return client.ask(vmContracts.GetListedVm, { vm_uuid: text });
  const [found, ...others] = text.endsWith('*') ? [] : await listVms(client, { alias: text });
  if (found === undefined) throw new UsageError(`There is no VM ${escapeControls(text)}; cnapi vm list lists them`);
  if (others.length === 0) return found;
  const labelOf = await serverLabels(client, [found, ...others]);
  const named = [found, ...others]
    .slice(0, 20)
    .map(({ uuid, server_uuid }) => `${uuid} on ${escapeControls(labelOf(server_uuid))}`);
  throw new UsageError(`There are several VMs ${escapeControls(text)}; give the uuid of one: ${named.join(', ')}`);
}

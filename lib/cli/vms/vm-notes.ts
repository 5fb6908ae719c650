/** What commands that create VMs say beside the result. */
import { vmContracts } from '../../protocol/api/vms.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import type { Context } from '../invocation/context.ts';
import { listVms } from './vm-lookup.ts';

/** After the end of a create. */
const EARLY_END_MS = 300;

/** Aliases need not be unique, but a command that is given an alias must find exactly one VM. */
export async function warnOfNamesakes({ client, output }: Context, { alias, uuid }: JsonObject): Promise<void> {
  if (typeof alias !== 'string' || alias.endsWith('*')) return;
  const [other] = (await listVms(client, { alias })).filter((one) => one.uuid !== uuid);
  if (other !== undefined) output.note(`VM ${other.uuid} has the alias ${alias}, too; commands will need a uuid`);
}

/** Warns if the program has ended already, because a program that cannot run ends immediately. */
export async function noteEarlyEnd({ client, clock, output }: Context, uuid: string): Promise<void> {
  await clock.sleep(EARLY_END_MS);
  const vm = await client.ask(vmContracts.GetListedVm, { vm_uuid: uuid }).catch(() => undefined);
  if (vm?.state !== 'stopped') return;
  const code = typeof vm.exit_status === 'number' ? ` with ${vm.exit_status}` : '';
  output.note(`its program has ended${code}; see cnapi vm logs ${uuid}`);
}

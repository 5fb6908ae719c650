/**
 * `cnapi vm create` without a server: a workflow job creates the VM on the server that placement
 * chooses.
 */
import { provisioningContracts } from '../../protocol/api/provisioning.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import type { Context } from '../invocation/context.ts';
import { EXIT } from '../terminal/command-errors.ts';
import { showCreatedWorkflow } from '../workflows/follow-workflow.ts';
import { buildVmFields, checkFields, type FieldOptions } from './vm-fields.ts';
import { noteEarlyEnd, warnOfNamesakes } from './vm-notes.ts';

/** Returns the exit code. @throws UsageError */
export async function provision(
  context: Context,
  fields: readonly string[],
  { detach = false, ...others }: { detach?: boolean } & FieldOptions,
): Promise<number> {
  const { client, random, output } = context;
  const fieldsOfVm: JsonObject = { uuid: random.uuid(), ...(await buildVmFields(fields, others)) };
  checkFields(fieldsOfVm, { action: 'provision', brand: fieldsOfVm.brand });
  const uuid = String(fieldsOfVm.uuid);
  await warnOfNamesakes(context, fieldsOfVm);
  const { job_uuid } = await client.documents(provisioningContracts.ProvisionVm, fieldsOfVm);
  output.note(`VM ${uuid}`);
  const exitCode = await showCreatedWorkflow(context, { uuid: String(job_uuid), wait: !detach });
  if (exitCode === EXIT.ok && !detach && fieldsOfVm.autoboot !== false) await noteEarlyEnd(context, uuid);
  return exitCode;
}

/**
 * Answers the route by which VMs are created where there is room
 * (lib/protocol/api/provisioning.ts).
 */
import { invalidParameter } from '../../../platform/errors.ts';
import type { Random } from '../../../platform/random.ts';
import { type AllocationParams, placementContracts } from '../../../protocol/api/placement.ts';
import { provisioningContracts } from '../../../protocol/api/provisioning.ts';
import type { JsonObject } from '../../../protocol/json/bounded-json.ts';
import { withSecretUrl } from '../../../protocol/secret-params.ts';
import { VM_DEFAULTS } from '../../../protocol/vms.ts';
import { accepted, bind, type Route, recordedInCommit } from '../../http/route.ts';
import type { Allocator } from '../../placement/allocator.ts';
import { NoAllocatableServersError } from '../../placement/placement-errors.ts';
import { buildPlacementRequest } from '../../placement/request.ts';
import { quotaCallerOf } from '../../placement/routes/placement-routes.ts';
import { findVmParamIssue } from '../../vms/routes/vm-params.ts';
import type { VmRegistry } from '../../vms/vm-registry.ts';
import { vmParamsOf } from '../definitions.ts';
import type { WorkflowJobs } from '../workflow-jobs.ts';

interface ProvisionRouteDeps {
  workflowJobs: Pick<WorkflowJobs, 'create' | 'findForVm'>;
  allocator: Pick<Allocator, 'allocate' | 'release'>;
  vms: Pick<VmRegistry, 'find'>;
  random: Random;
}

const NOBODY = '00000000-0000-0000-0000-000000000000';

export function provisionRoutes({ workflowJobs, allocator, vms, random }: ProvisionRouteDeps): Route[] {
  return bind(provisioningContracts, {
    ProvisionVm: recordedInCommit(
      async ({ params, rawParams, actor, source, requestId, withAuditRecord, setAuditedObject }) => {
        const { uuid: vmUuid, server_uuid } = params;
        const wanted = withSecretImage({ ...rawParams, uuid: vmUuid, ...(server_uuid && { server_uuid }) });
        const issue = findVmParamIssue('machine_create', vmParamsOf(wanted));
        if (issue !== undefined) throw invalidParameter(issue.field, issue.message);
        const place = { ...buildPlacementRequest(allocationOf(wanted)), isCreatedNext: true };
        setAuditedObject(vmUuid);
        const request = { name: 'vm-provision', vmUuid, params: wanted, requestId, actor: actor.name } as const;
        const earlier = await workflowJobs.findForVm(request, (await vms.find(vmUuid))?.value);
        if (earlier !== undefined) return accepted({ job_uuid: earlier, vm_uuid: vmUuid });
        const { candidate } = await allocator.allocate(place, {
          servers: server_uuid === undefined ? undefined : [server_uuid],
          caller: quotaCallerOf(actor, source),
        });
        const serverUuid = candidate?.uuid;
        if (serverUuid === undefined) throw new NoAllocatableServersError('its server was removed during the request');
        const id = random.uuid();
        const created = await withAuditRecord(
          (record) => workflowJobs.create({ ...request, serverUuid, record }, id),
          id,
        ).catch(async (error: unknown) => {
          // Otherwise the room would be held until the claim expires. What a job holds stays: the
          // commit may have succeeded although its answer was lost.
          await allocator.release(vmUuid, serverUuid).catch(() => undefined);
          throw error;
        });
        return accepted({ job_uuid: created, vm_uuid: vmUuid });
      },
    ),
  });
}

/** What `POST /allocate` is sent for such a VM. @throws InvalidParametersError */
function allocationOf(vm: JsonObject): AllocationParams {
  const { uuid, owner_uuid = NOBODY, max_physical_memory: ram = VM_DEFAULTS.max_physical_memory, quota } = vm;
  const { cpu_cap, brand, traits, locality, docker, internal_metadata, image = {}, package: pack, nic_tags = [] } = vm;
  const size = { ram, cpu_cap, ...(typeof quota === 'number' && { quota: quota * 1024 }) };
  const parsed = placementContracts.SelectServer.params.safeParse({
    vm: { vm_uuid: uuid, owner_uuid, ...size, brand, traits, locality, docker, internal_metadata },
    ...{ image, package: pack, nic_tags },
  });
  if (parsed.success) return parsed.data;
  const [{ path, message } = { path: [], message: 'is invalid' }] = parsed.error.issues;
  throw invalidParameter(path.join('.') || 'vm', message);
}

/** The URL is a secret if it may hold one. */
function withSecretImage(params: JsonObject): JsonObject {
  const { secret_params } = withSecretUrl('image_ensure_present', { url: params.image_url });
  const { secret_params: given = [] } = params;
  if (secret_params === undefined || !Array.isArray(given) || given.includes('/image_url')) return params;
  return { ...params, secret_params: [...given, '/image_url'] };
}

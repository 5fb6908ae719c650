/**
 * The VMs of all servers, and Triton's routes for the VMs of one server. Triton's routes forward
 * all parameters to the task of the server's agent; what is declared here is checked before. Most
 * answer immediately with the id of the task.
 */
import { z } from 'zod';
import { VM_STATES, type VmSummary } from '../vms.ts';
import {
  answer,
  type Contract,
  contracts,
  errorResponse,
  extensibleObject,
  type Known,
  type ParamsOf,
} from './contract/contract.ts';
import {
  array,
  booleanText,
  boundedText,
  integer,
  MAX_LIST,
  number,
  object,
  serverUuid,
  text,
  uuid,
} from './contract/rules.ts';
import { failures, refusals, taskId, taskIdExample, underTicket } from './server-tasks.ts';
import { noServer } from './servers.ts';

/** Agents of Triton report other states, so only names are checked against what ours report. */
const vm = {
  uuid: uuid(),
  server_uuid: uuid().describe('The server of the VM'),
  alias: z.string().optional(),
  brand: z.string().optional().describe("`oci` for containers of this project's agent"),
  state: z
    .string()
    .optional()
    .describe(`One of ${VM_STATES.join(', ')}; agents of Triton have others`),
  zone_state: z.string().optional(),
  owner_uuid: z.string().optional(),
  image_uuid: z.string().optional(),
  max_physical_memory: z.number().optional().describe('MiB'),
  cpu_cap: z.number().optional().describe('100 is one core'),
  quota: z.number().optional().describe('GiB'),
  last_modified: z.string().optional().describe("By the clock of the server's agent"),
  exit_status: z.number().nullable().optional().describe('How its last run ended'),
  error: z.string().optional().describe('Why it failed, or why its last run ended as it did'),
  server_status: z
    .enum(['running', 'unknown'])
    .optional()
    .describe('While the server is `unknown`, the VM is shown as it was reported last'),
  as_of: z.string().optional().describe('When the last report of the server was stored'),
} satisfies Record<keyof VmSummary | 'server_uuid' | 'server_status' | 'as_of', z.ZodType>;

const storedVm = extensibleObject(vm).meta({ id: 'ListedVm' });
/** A VM as the control plane knows it from the reports of its agent. */
export type StoredVm = Known<z.output<typeof storedVm>>;

/** A VM as its agent answers. */
const wholeVm = extensibleObject({
  uuid: z.string(),
  state: z.string().optional(),
  withheld: z
    .boolean()
    .optional()
    .describe('Only what the agent has reported: the rest requires a role that may run tasks'),
}).meta({ id: 'Vm' });

const any = extensibleObject({});
const address = extensibleObject({ host: z.string().optional(), port: z.unknown().optional() });
const copied = extensibleObject({
  host: z.string().optional().describe('Absent if the mode is stat'),
  port: z.unknown().optional(),
  containerPathStat: z.unknown().optional().describe('name, size, mode, mtime and linkTarget, as in the Docker API'),
});

const vmUuid = { vm_uuid: uuid().describe('Uuid of the VM') };
const job = { jobid: text().optional().describe('Of the workflow; passed on to the agent') };
const ofServer = { ...serverUuid, ...job, ...underTicket };
const ofVm = { ...ofServer, ...vmUuid };
const snapshotName = { snapshot_name: text().describe('Name of the snapshot') };

const idempotent = { idempotent: booleanText().optional().describe('Succeeds if the VM is already in that state') };
const stopping = {
  force: booleanText().optional().describe('Kill the VM immediately'),
  timeout: number().optional().describe('Seconds until the VM is killed'),
};
const update = object().optional().describe('Only `set_internal_metadata`');

const started = { 200: { description: 'The task was accepted', schema: taskId, example: taskIdExample } } as const;
const badUpdate = {
  500: errorResponse('`update` may only have set_internal_metadata', 'InvalidArgument'),
};
const notSupported = { 501: errorResponse('The agent of this server cannot do this', 'NotSupported') };
const noVm = { 404: errorResponse('No such server, or no such VM', 'ResourceNotFound') };

const reference = { tag: 'vms', origin: 'reference', lenient: true } as const;
const onRunning = { ...reference, takesAnyBody: true, preconditions: ['server', 'running'] } as const;

type Shape = z.ZodRawShape;

/** A change of a VM, as a task. */
function action<const Method extends Contract['method'], const Path extends string, Params extends Shape>(
  method: Method,
  path: Path,
  summary: string,
  params: Params,
) {
  return {
    ...onRunning,
    method,
    path: `/servers/:server_uuid/vms/:vm_uuid${path}`,
    summary,
    params: z.object({ ...ofVm, ...params }),
    responses: { ...started, ...refusals },
  } as const;
}

/** A question to the agent, which the request waits for. */
function question<const Method extends Contract['method'], Params extends Shape, Schema extends z.ZodType>(
  method: Method,
  path: string,
  summary: string,
  { params, schema }: { params: Params; schema: Schema },
) {
  return {
    ...onRunning,
    method,
    path: `/servers/:server_uuid/vms/:vm_uuid${path}`,
    summary,
    longRequest: 'wait',
    params: z.object({ ...ofVm, ...params }),
    responses: { 200: { description: 'OK', schema }, ...failures, ...noVm, ...notSupported },
  } as const;
}

/** A question in the words of Docker. */
function dockerQuestion<Params extends Shape>(path: string, summary: string, params: Params) {
  return question('POST', path, summary, { params, schema: address });
}

/** Failures of the routes that answer a port of the instance. */
const portFailures = {
  ...failures,
  ...noVm,
  409: errorResponse('The server, or the VM, does not run', ...refusals[409].codes, 'VmNotRunning'),
  429: errorResponse('The caller has the maximum number of streams', 'TooManyStreams'),
  501: errorResponse('The agent cannot do this; or the caller is in no trusted network', 'NotSupported'),
  503: errorResponse(
    'The instance has the maximum number of streams, or is leaving; another one answers',
    ...failures[503].codes,
    'TooManyStreams',
    'InstanceDraining',
  ),
};

export const vmContracts = contracts({
  ListVms: {
    method: 'GET',
    path: '/vms',
    summary: 'The VMs of all servers in order of uuid, page by page, as their agents have reported them',
    tag: 'vms',
    origin: 'own',
    params: z.object({
      server_uuid: uuid().optional().describe('Only those of this server'),
      owner_uuid: boundedText(100).optional().describe('Only those of this owner'),
      image_uuid: boundedText(100).optional().describe('Only those made from this image'),
      state: boundedText(50).optional().describe('Such as running, stopped, provisioning, failed'),
      alias: boundedText(200).optional().describe('The whole alias, or its beginning and `*`'),
      limit: integer('limit', 1, MAX_LIST).optional().describe(`At most this many; ${MAX_LIST} when absent`),
      after: uuid().optional().describe('The page after this uuid: the `next` of the page before'),
    }),
    preconditions: [],
    responses: {
      200: {
        description: 'OK',
        schema: answer({ vms: z.array(storedVm), next: uuid().optional().describe('Absent on the last page') }),
      },
    },
  },
  GetListedVm: {
    method: 'GET',
    path: '/vms/:vm_uuid',
    summary: 'One VM, on whichever server it is, as its agent has reported it',
    tag: 'vms',
    origin: 'own',
    params: z.object(vmUuid),
    preconditions: [],
    responses: {
      200: { description: 'OK', schema: storedVm, headers: { ETag: 'Changes with each change of what is stored' } },
      404: errorResponse('No such VM', 'ResourceNotFound'),
    },
  },
  ListServerVms: {
    method: 'GET',
    path: '/servers/:server_uuid/vms',
    summary: 'The VMs of a server',
    ...reference,
    params: z.object({ ...serverUuid }),
    preconditions: ['server'],
    responses: { 200: { description: 'OK', schema: z.array(extensibleObject({ uuid: uuid() })) }, ...noServer },
  },
  CreateVm: {
    ...onRunning,
    method: 'POST',
    path: '/servers/:server_uuid/vms',
    summary: 'Creates a VM. A request that is repeated gives the same task while its VM exists or is being created',
    params: z.object({
      ...ofServer,
      uuid: uuid('value is missing or not a text; choose a uuid').describe('Uuid of the new VM'),
      image_uuid: text().optional().describe('Required; for kvm and bhyve `disks[0].image_uuid`'),
      image: object().optional(),
      disks: array().optional(),
    }),
    findIssues: ({ image_uuid, disks }) => {
      const [disk] = Array.isArray(disks) ? disks : [];
      const named = image_uuid ?? (disk as { image_uuid?: unknown } | undefined)?.image_uuid;
      if (typeof named === 'string' && named !== '') return [];
      return [{ field: 'image_uuid', message: 'value is missing; name the image of which the VM is made' }];
    },
    responses: { ...started, ...refusals },
  },
  GetVm: question('GET', '', 'A VM as its agent knows it at the moment; for readers as it was reported last', {
    params: { include_dni: booleanText().optional().describe('Also a VM that is marked `do_not_inventory`') },
    schema: wholeVm,
  }),
  GetVmInfo: {
    ...question('GET', '/info', 'What a running VM uses, and its limits', {
      params: { info: text().optional().describe('Which kinds, by comma; all when absent') },
      schema: any,
    }),
    requiredRole: 'operator',
  },
  GetVmVnc: {
    ...question('GET', '/vnc', 'Where a VNC client can connect to a VM; for agents of Triton', {
      params: {},
      schema: address,
    }),
    requiredRole: 'operator',
  },
  GetVmProcesses: {
    ...question('GET', '/proc', 'The processes of a VM', { params: {}, schema: z.unknown() }),
    requiredRole: 'operator',
  },
  UpdateVm: action('POST', '/update', 'Changes a VM; the body is an update as of vmadm', {}),
  UpdateVmNics: {
    ...onRunning,
    method: 'POST',
    path: '/servers/:server_uuid/vms/nics/update',
    summary: 'Changes the NICs of the VMs that are on a network',
    params: z.object(ofServer),
    responses: {
      ...started,
      ...refusals,
      400: errorResponse('The platform of the server is too old', 'InvalidVersion'),
    },
  },
  StartVm: {
    ...action('POST', '/start', 'Starts a VM', { ...idempotent, update }),
    responses: { ...started, ...refusals, ...badUpdate },
  },
  StopVm: action('POST', '/stop', 'Stops a VM', { ...idempotent, ...stopping }),
  RebootVm: {
    ...action('POST', '/reboot', 'Stops a VM and starts it again', { ...idempotent, ...stopping, update }),
    responses: { ...started, ...refusals, ...badUpdate },
  },
  KillVm: action('POST', '/kill', 'Sends a signal to the first process of a VM', {
    ...idempotent,
    signal: z
      .union([text(), z.number()], 'value was not a number or a string')
      .optional()
      .describe('Name or number; SIGKILL when absent'),
  }),
  ReprovisionVm: action('POST', '/reprovision', 'Gives a VM a new root file system, of another image', {
    image_uuid: text(),
  }),
  DeleteVm: action('DELETE', '', 'Destroys a VM; succeeds if it does not exist', {}),
  MigrateVm: {
    ...action('POST', '/migrate', 'One step of a migration; for agents of Triton', { migrationTask: object() }),
    responses: { ...started, ...refusals, ...notSupported },
  },
  CreateVmSnapshot: action('PUT', '/snapshots', 'Makes a snapshot of a VM', {}),
  RollbackVmSnapshot: action('PUT', '/snapshots/:snapshot_name/rollback', 'Sets a VM back to a snapshot', snapshotName),
  DeleteVmSnapshot: action('DELETE', '/snapshots/:snapshot_name', 'Deletes a snapshot of a VM', snapshotName),
  CreateVmImage: action('POST', '/images', 'Makes an image of a VM', {
    compression: text(),
    imgapi_url: text(),
    manifest: object(),
    incremental: booleanText().optional(),
    prepare_image_script: text().optional(),
  }),
  DockerExec: {
    ...dockerQuestion(
      '/docker-exec',
      'Runs a program in a VM, or reads its log; answers where the caller can connect by TCP, within 30 seconds',
      {
        command: object().describe(
          'Cmd, Env, AttachStdin, Tty, Detach; or Logs, Follow, Tail. Agents of Triton know more',
        ),
      },
    ),
    responses: {
      200: { description: 'OK; empty for a program that is detached', schema: address },
      ...portFailures,
      429: errorResponse(
        'The caller has the maximum number of streams; the server runs the maximum number of detached programs',
        'TooManyStreams',
        'TooManyPrograms',
      ),
    },
  },
  DockerCopy: {
    ...dockerQuestion(
      '/docker-copy',
      'Copies an archive of tar from or to a VM; answers what is at the path, and where the caller can connect by TCP, within seconds',
      {
        path: text().optional().describe('Of the file or directory to read; or of the directory to write into'),
        mode: text().optional().describe('read, write or stat; read when absent'),
        no_overwrite_dir: booleanText()
          .optional()
          .describe(
            'A directory never replaces a file, nor a file a directory, whatever it says. For agents of Triton',
          ),
        payload: object().optional().describe('Old clients send this instead of path and mode'),
      },
    ),
    responses: {
      200: { description: 'OK', schema: copied },
      ...portFailures,
      400: errorResponse('The path is not a directory', 'PathNotDirectory'),
      404: errorResponse('No such server, VM or file', 'ResourceNotFound', 'FileNotFound'),
      409: errorResponse(
        'The server, or the VM, does not run',
        ...portFailures[409].codes,
        'DockerCopyStoppedContainerNoPlatformSupport',
      ),
    },
  },
  DockerStats: {
    ...dockerQuestion(
      '/docker-stats',
      'Statistics of a VM once a second; answers where the caller can connect by TCP, within 30 seconds',
      {
        payload: object().optional().describe('doStream: false for one line only; clientApiVersion, of Docker'),
      },
    ),
    responses: { 200: { description: 'OK', schema: address }, ...portFailures },
  },
  DockerBuild: dockerQuestion('/docker-build', 'Builds an image in a VM; for agents of Triton', {
    payload: object().optional(),
  }),
});

/** Which VMs to list. */
export type VmFilter = Omit<ParamsOf<typeof vmContracts.ListVms>, 'limit' | 'after'>;

/**
 * Triton's routes for ZFS of one server. Its agent runs `zfs` and `zpool`, by a task for which the
 * request waits; the control plane stores nothing of it. Servers that are not set up have it, too.
 */
import { z } from 'zod';
import { MAX_ZFS_PROPERTIES, reasonNotDataset, reasonNotDatasetOrSnapshot, reasonNotSnapshotName } from '../zfs.ts';
import { type Contract, contracts, errorResponse, extensibleObject, type Known } from './contract/contract.ts';
import { serverUuid, text, textMap } from './contract/rules.ts';
import { failures, refusals, underTicket } from './server-tasks.ts';

/** All values are texts, as ZFS prints them. Agents of Triton may have other fields. */
export const zfsDataset = extensibleObject({
  name: z.string(),
  type: z.string().optional().describe('filesystem, volume or snapshot'),
  used: z.string().optional().describe('As ZFS prints it, such as 1.5G; the properties have bytes'),
  avail: z.string().optional(),
  refer: z.string().optional(),
  mountpoint: z.string().optional(),
}).meta({ id: 'ZfsDataset' });

export const zfsPool = extensibleObject({
  name: z.string(),
  size: z.string().optional(),
  allocated: z.string().optional(),
  free: z.string().optional(),
  cap: z.string().optional().describe('How full it is, such as 17%'),
  health: z.string().optional().describe('ONLINE, DEGRADED, FAULTED, …'),
}).meta({ id: 'ZfsPool' });

export type ZfsDataset = Known<z.output<typeof zfsDataset>>;
export type ZfsPool = Known<z.output<typeof zfsPool>>;

export const zfsProperties = z.record(z.string(), z.record(z.string(), z.string())).meta({ id: 'ZfsProperties' });

const name = (reasonAgainst: (value: string) => string | undefined) =>
  text().superRefine((value, context) => {
    const reason = reasonAgainst(value);
    if (reason !== undefined) context.addIssue(reason);
  });

const ofServer = { ...serverUuid, ...underTicket };
const ofDataset = { ...ofServer, dataset: name(reasonNotDataset).describe('A file system or volume') };
const ofAny = {
  ...ofServer,
  dataset: name(reasonNotDatasetOrSnapshot).describe('A file system, a volume, or a snapshot: DATASET@NAME'),
};
const ofSnapshot = {
  ...ofDataset,
  name: name(reasonNotSnapshotName).describe('The snapshot, without its dataset'),
};

const notSupported = { 501: errorResponse('The server has no ZFS', 'NotSupported') };
const notChangeable = {
  409: errorResponse(
    "As for every task; or the agent's configuration does not allow the change, or VMs use the dataset",
    ...refusals[409].codes,
    'DatasetNotChangeable',
  ),
};

const ofTriton = {
  tag: 'zfs',
  origin: 'reference',
  longRequest: 'wait',
  lenient: true,
  preconditions: ['server'],
} as const;

/** A question is a task, and readers must not be able to fill their table. */
function question<const Path extends string, Params extends z.ZodRawShape, Schema extends z.ZodType>(
  path: Path,
  summary: string,
  { params, schema }: { params: Params; schema: Schema },
) {
  return {
    ...ofTriton,
    method: 'GET',
    path: `/servers/:server_uuid${path}`,
    summary,
    params: z.object(params),
    requiredRole: 'operator',
    responses: { 200: { description: 'OK', schema }, ...failures, ...notSupported },
  } as const;
}

function change<const Method extends Contract['method'], const Path extends string, Params extends z.ZodRawShape>(
  method: Method,
  path: Path,
  summary: string,
  params: Params,
) {
  return {
    ...ofTriton,
    method,
    path: `/servers/:server_uuid/datasets${path}`,
    summary,
    params: z.object(params),
    responses: { 204: { description: 'Done' }, ...failures, ...notChangeable, ...notSupported },
  } as const;
}

const NAMES = 'any parameter that begins with `prop` names one, as in `prop1=quota`; all when there is none';

export const zfsContracts = contracts({
  ListDatasets: question('/datasets', 'The file systems and volumes of a server', {
    params: { ...ofServer, dataset: ofDataset.dataset.optional().describe('Only this one and those below it') },
    schema: z.array(zfsDataset),
  }),
  CreateDataset: change('POST', '', 'Creates a file system', ofDataset),
  DestroyDataset: change(
    'DELETE',
    '/:dataset',
    'Destroys a dataset that has none below it and no snapshots, or a snapshot',
    ofAny,
  ),
  CreateDatasetSnapshot: change('POST', '/:dataset/snapshot', 'Takes a snapshot of a dataset', ofSnapshot),
  RollbackDataset: change('POST', '/:dataset/rollback', 'Takes a dataset back to its latest snapshot', ofSnapshot),
  ListDatasetSnapshots: question('/datasets/:dataset/snapshots', 'The snapshots of a dataset', {
    params: ofDataset,
    schema: z.array(zfsDataset),
  }),
  GetAllDatasetProperties: question('/dataset-properties', `Properties of all datasets, in bytes: ${NAMES}`, {
    params: ofServer,
    schema: zfsProperties,
  }),
  GetDatasetProperties: question('/datasets/:dataset/properties', `Properties of a dataset, in bytes: ${NAMES}`, {
    params: ofAny,
    schema: zfsProperties,
  }),
  SetDatasetProperties: change('POST', '/:dataset/properties', 'Sets properties of a dataset', {
    ...ofAny,
    properties: textMap(MAX_ZFS_PROPERTIES).describe('Values by name; those before one that fails stay set'),
  }),
  ListPools: question('/zpools', 'The ZFS pools of a server', { params: ofServer, schema: z.array(zfsPool) }),
});

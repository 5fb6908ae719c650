/** Answers the routes of ZFS (lib/protocol/api/zfs.ts) by tasks of the server's agent. */

import { z } from 'zod';
import { definedFields } from '../../../platform/defined-fields.ts';
import { invalidParameter } from '../../../platform/errors.ts';
import { zfsContracts, zfsDataset, zfsPool, zfsProperties } from '../../../protocol/api/zfs.ts';
import type { JsonObject } from '../../../protocol/json/bounded-json.ts';
import type { TaskName } from '../../../protocol/task-name.ts';
import { MAX_ZFS_PROPERTIES, reasonNotProperty } from '../../../protocol/zfs.ts';
import { bind, empty, ok, type Route, recordedInCommit } from '../../http/route.ts';
import { type RunContext, runTask } from '../../tasks/requests/run-task.ts';
import type { Tasks } from '../../tasks/tasks.ts';
import { explainZfsFailure } from '../zfs-failure.ts';

export interface ZfsRouteDeps {
  tasks: Pick<Tasks, 'create' | 'wait'>;
  /** Aborts when this instance leaves and every wait must be answered. */
  instanceLeaving: AbortSignal;
}

interface ZfsTask {
  name: TaskName;
  params: JsonObject;
  /** Before the message of a failure, as in Triton's CNAPI. */
  text: string;
}

/** The limit of a question; a change has an hour, as in Triton's CNAPI. */
const QUESTION_SECONDS = 60;
const LIST_BYTES = 2 * 1024 * 1024;
/** Triton's CNAPI says this of a rollback as well. */
const SNAPSHOT_TEXT = 'cannot create snapshot: ';

/** Agents of Triton add their log. */
const GET_PROPERTIES = {
  name: 'zfs_get_properties' as const,
  text: 'cannot get properties:',
  result: z
    .looseObject({})
    .transform(({ log: _, ...properties }) => properties)
    .pipe(zfsProperties),
};

const list = { answerBytes: LIST_BYTES } as const;

export function zfsRoutes(deps: ZfsRouteDeps): Route[] {
  const run = <Result>(
    context: RunContext,
    { text, ...task }: ZfsTask & { result: z.ZodType<Result>; seconds?: number },
  ) =>
    runTask(deps, context, task).catch((error: unknown) =>
      explainZfsFailure(error, { text, serverUuid: context.params.server_uuid }),
    );
  const ask = <Result>(context: RunContext, task: ZfsTask & { result: z.ZodType<Result> }) =>
    run(context, { ...task, seconds: QUESTION_SECONDS });
  const act = async (context: RunContext, task: ZfsTask) => {
    await run(context, { ...task, result: z.unknown() });
    return empty(204);
  };

  return bind(
    zfsContracts,
    {
      async ListDatasets(context) {
        const params = definedFields({ dataset: context.params.dataset });
        const task = { name: 'zfs_list_datasets' as const, params, text: 'cannot list datasets:' };
        return ok(await ask(context, { ...task, result: listIn('datasets', zfsDataset) }));
      },
      CreateDataset: recordedInCommit((context) => {
        const { dataset } = context.params;
        return act(context, { name: 'zfs_create_dataset', params: { dataset }, text: 'cannot create dataset:' });
      }),
      DestroyDataset: recordedInCommit((context) => {
        const { dataset } = context.params;
        return act(context, { name: 'zfs_destroy_dataset', params: { dataset }, text: 'cannot destroy dataset:' });
      }),
      CreateDatasetSnapshot: recordedInCommit((context) => {
        const dataset = `${context.params.dataset}@${context.params.name}`;
        return act(context, { name: 'zfs_snapshot_dataset', params: { dataset }, text: SNAPSHOT_TEXT });
      }),
      RollbackDataset: recordedInCommit((context) => {
        const dataset = `${context.params.dataset}@${context.params.name}`;
        return act(context, { name: 'zfs_rollback_dataset', params: { dataset }, text: SNAPSHOT_TEXT });
      }),
      async ListDatasetSnapshots(context) {
        const { dataset } = context.params;
        const task = { name: 'zfs_list_snapshots' as const, params: { dataset }, text: 'cannot list snapshots:' };
        return ok(await ask(context, { ...task, result: listIn('snapshots', zfsDataset) }));
      },
      async GetAllDatasetProperties(context) {
        const params = parseProperties(context);
        return ok(await ask(context, { ...GET_PROPERTIES, params }));
      },
      async GetDatasetProperties(context) {
        const params = { dataset: context.params.dataset, ...parseProperties(context) };
        return ok(await ask(context, { ...GET_PROPERTIES, params }));
      },
      SetDatasetProperties: recordedInCommit((context) => {
        const { dataset, properties } = context.params;
        const params = { dataset, properties };
        return act(context, { name: 'zfs_set_properties', params, text: 'cannot set properties:' });
      }),
      async ListPools(context) {
        const task = { name: 'zfs_list_pools' as const, params: {}, text: 'cannot list pools:' };
        return ok(await ask(context, { ...task, result: listIn('pools', zfsPool) }));
      },
    },
    { ListDatasets: list, ListDatasetSnapshots: list, GetAllDatasetProperties: list, GetDatasetProperties: list },
  );
}

/** Agents of Triton answer with the list itself. */
const listIn = <One>(field: string, item: z.ZodType<One>): z.ZodType<One[]> =>
  z
    .union([z.array(z.unknown()), z.looseObject({ [field]: z.array(z.unknown()) })], `it has no list of ${field}`)
    .transform((result) => (Array.isArray(result) ? result : result[field]))
    .pipe(z.array(item));

/** The values of all parameters whose names begin with `prop`. @throws InvalidParametersError */
function parseProperties({ rawParams }: RunContext): { properties?: string[] } {
  const given = Object.entries(rawParams).filter(([name]) => name.startsWith('prop'));
  if (given.length > MAX_ZFS_PROPERTIES) throw invalidParameter('prop', `More than ${MAX_ZFS_PROPERTIES} properties`);
  const names = given.map(([name, value]) => {
    const reason = typeof value === 'string' ? reasonNotProperty(value) : 'value was not a string';
    if (reason !== undefined) throw invalidParameter(name, reason);
    return String(value);
  });
  return names.length === 0 ? {} : { properties: names };
}

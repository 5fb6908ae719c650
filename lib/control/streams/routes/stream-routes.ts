/** Answers the routes of work that has a stream (lib/protocol/api/streams.ts). */

import { withoutUndefined } from '../../../platform/defined-fields.ts';
import { invalidParameter } from '../../../platform/errors.ts';
import { streamContracts } from '../../../protocol/api/streams.ts';
import { MAX_TASK_TIMEOUT_MS } from '../../../protocol/limits.ts';
import type { InstanceAddress } from '../../../protocol/link/frames.ts';
import {
  CONNECT_TASK,
  EXEC_TASK,
  type StreamPlace,
  VM_CONNECT_TASK,
  VM_CONSOLE_TASK,
  VM_EXEC_TASK,
  VM_LOGS_TASK,
} from '../../../protocol/streams/stream.ts';
import type { StreamTaskName } from '../../../protocol/task-name.ts';
import { accepted, bind, type Route, recordedInCommit } from '../../http/route.ts';
import { createRequestedTask, type TaskCaller } from '../../tasks/requests/requested-task.ts';
import type { Tasks } from '../../tasks/tasks.ts';
import { placeOf } from '../stream-place.ts';

interface StreamRouteDeps {
  tasks: Pick<Tasks, 'create'>;
  /** The instances to which agents may connect. */
  addresses(): readonly InstanceAddress[];
}

interface StreamedWork {
  server_uuid: string;
  ticket_uuid?: string | undefined;
  stream: string;
  timeout_ms?: number | undefined;
}

export function streamRoutes({ tasks, addresses }: StreamRouteDeps): Route[] {
  const requirePlace = (name: string): StreamPlace => {
    const place = placeOf(name, addresses());
    if (place === undefined) throw invalidParameter('stream', 'its instance is not live any more; open a new stream');
    return place;
  };

  /** The parameters of the task are those of the request that are not about the task itself. */
  const start = async <Params extends StreamedWork>(
    task: StreamTaskName,
    context: TaskCaller & { params: Params },
    renamed: Record<string, unknown> = {},
  ) => {
    const { server_uuid: _, ticket_uuid: _ticket, stream, timeout_ms: timeoutMs, ...rest } = context.params;
    const params = { ...withoutUndefined({ ...rest, ...renamed }), stream: requirePlace(stream) };
    const streamed = { name: task, params, timeoutMs: timeoutMs ?? MAX_TASK_TIMEOUT_MS };
    return accepted({ id: await createRequestedTask(context, tasks, streamed) });
  };
  /** Agents know a VM as `uuid`. */
  const asUuid = ({ vm_uuid }: { vm_uuid: string }) => ({ uuid: vm_uuid, vm_uuid: undefined });

  return bind(streamContracts, {
    StartExec: recordedInCommit((context) => start(EXEC_TASK, context)),
    StartConnection: recordedInCommit((context) => start(CONNECT_TASK, context)),
    StartVmExec: recordedInCommit((context) => start(VM_EXEC_TASK, context, asUuid(context.params))),
    StartVmConnection: recordedInCommit((context) => start(VM_CONNECT_TASK, context, asUuid(context.params))),
    StartVmConsole: recordedInCommit((context) => start(VM_CONSOLE_TASK, context, asUuid(context.params))),
    StartVmLogs: recordedInCommit((context) => start(VM_LOGS_TASK, context, asUuid(context.params))),
  });
}

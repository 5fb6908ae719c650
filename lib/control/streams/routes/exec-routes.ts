/** Answers the routes of work that has a stream (lib/protocol/api/streams.ts). */
import { invalidParameter } from '../../../platform/errors.ts';
import { optionalField } from '../../../platform/optional-field.ts';
import { streamContracts } from '../../../protocol/api/streams.ts';
import { MAX_TASK_TIMEOUT_MS } from '../../../protocol/limits.ts';
import type { InstanceAddress } from '../../../protocol/link/frames.ts';
import { EXEC_TASK, type StreamPlace } from '../../../protocol/streams/stream.ts';
import { accepted, bind, type Route } from '../../http/route.ts';
import type { Tasks } from '../../tasks/tasks.ts';

interface ExecRouteDeps {
  tasks: Pick<Tasks, 'create'>;
  /** The instances to which agents may connect. */
  addresses(): readonly InstanceAddress[];
}

export function execRoutes({ tasks, addresses }: ExecRouteDeps): Route[] {
  /** The agent is sent to an instance of this zone, whatever the caller says. */
  const placeOf = (name: string): StreamPlace => {
    const [instance] = name.split('.');
    const address = addresses().find(({ uuid }) => uuid === instance);
    if (address === undefined) throw invalidParameter('stream', 'its instance is not live any more; open a new stream');
    return { name, host: address.host, port: address.port };
  };

  return bind(
    streamContracts,
    {
      async StartExec({ params, requestId, actor, withRecord }) {
        const { server_uuid, ticket_uuid, stream, timeout_ms = MAX_TASK_TIMEOUT_MS, ...command } = params;
        const request = {
          serverUuid: server_uuid,
          name: EXEC_TASK,
          params: { ...withoutUndefined(command), stream: placeOf(stream) },
          requestId,
          actor: actor.name,
          timeoutMs: timeout_ms,
          ...optionalField('ticketUuid', ticket_uuid),
        };
        const { id } = await withRecord((record) => tasks.create({ ...request, record }));
        return accepted({ id });
      },
    },
    { StartExec: { commitsRecord: true } },
  );
}

const withoutUndefined = (values: Record<string, unknown>) =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));

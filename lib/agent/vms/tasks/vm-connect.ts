/**
 * `vm_connect {uuid, stream, port}` → `{bytesReceived, bytesSent}`. A TCP connection to a port of a
 * VM, at the loopback address of its network.
 */
import { z } from 'zod';
import { streamPlace } from '../../../protocol/streams/stream.ts';
import { vmUuid } from '../../../protocol/vms.ts';
import { defineTask } from '../../runner/task-definition.ts';
import { carryConnection, connectionFailure } from '../../streams/carry-connection.ts';
import { runOnStream } from '../../streams/run-on-stream.ts';
import { requireVms } from './vm-tasks.ts';

export const vmConnect = defineTask({
  lane: 'streams',
  params: z.object({ uuid: vmUuid, stream: streamPlace, port: z.int().min(1).max(65_535) }),
  run({ uuid, stream: place, port }, context) {
    return runOnStream(place, context, async (stream, signal) => {
      const at = `127.0.0.1:${port} of the VM`;
      const found = await requireVms(context).running.connect(uuid, { port, signal });
      if ('failure' in found) throw connectionFailure(found.failure, at);
      return carryConnection(found.socket, stream, { signal, at });
    });
  },
});

/**
 * `connect {stream, port}` → `{bytesReceived, bytesSent}`. A TCP connection to a port of this
 * server, at its loopback address only: an operator could reach what listens there with a command
 * as well.
 */
import { connect } from 'node:net';
import { z } from 'zod';
import { streamPlace } from '../../../protocol/streams/stream.ts';
import { defineTask } from '../../runner/task-definition.ts';
import { carryConnection } from '../carry-connection.ts';
import { runOnStream } from '../run-on-stream.ts';

const LOOPBACK = '127.0.0.1';

export const connectTask = defineTask({
  lane: 'streams',
  params: z.object({ stream: streamPlace, port: z.int().min(1).max(65_535) }),
  run({ stream: place, port }, context) {
    return runOnStream(place, context, (stream, signal) => {
      const socket = connect({ host: LOOPBACK, port, allowHalfOpen: true });
      return carryConnection(socket, stream, { signal, at: `${LOOPBACK}:${port} of the server` });
    });
  },
});

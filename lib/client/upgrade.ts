/** How the opening of a WebSocket ended. Used by failover-client.ts. */
import type { WebSocket } from 'ws';
import { ApiError } from './client-errors.ts';

type Opened = { socket: WebSocket } | { reason: string; refusal?: ApiError };

const MAX_BODY_BYTES = 64 * 1024;

/** An open socket is paused: the caller listens, and resumes it. `address`: for messages. */
export function waitUntilOpened(socket: WebSocket, address: string): Promise<Opened> {
  return new Promise((resolve) => {
    socket.once('open', () => {
      // A message that came with the answer would be emitted before anybody listens.
      socket.pause();
      resolve({ socket });
    });
    socket.on('error', (error) => resolve({ reason: error.message }));
    socket.once('unexpected-response', (request, response) => {
      const pieces: Buffer[] = [];
      let bytes = 0;
      response.on('data', (piece: Buffer) => {
        bytes += piece.length;
        if (bytes <= MAX_BODY_BYTES) pieces.push(piece);
        else request.destroy();
      });
      response.once('close', () => {
        const refusal = refusalIn(response.statusCode ?? 0, Buffer.concat(pieces).toString(), address);
        resolve({ reason: refusal.message, refusal });
      });
    });
  });
}

function refusalIn(status: number, text: string, address: string): ApiError {
  let body: { code?: unknown; message?: unknown } = {};
  try {
    body = Object(JSON.parse(text));
  } catch {
    // Something else than an instance answered.
  }
  const code = typeof body.code === 'string' ? body.code : 'UnexpectedAnswer';
  const message = typeof body.message === 'string' ? body.message : `HTTP status ${status}`;
  return new ApiError(code, status, message, { address, requestId: undefined });
}

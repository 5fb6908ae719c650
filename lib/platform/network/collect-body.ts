/**
 * Collects the body of an HTTP message in one buffer. Each piece is copied: a body of one-byte
 * pieces would otherwise take hundreds of times its size. The caller is asked about each piece
 * before it is kept. Used by the API and by the HTTP port of an agent.
 */
import type { Readable } from 'node:stream';

/** What has been received so far. */
export interface BodyProgress {
  bytes: number;
  pieces: number;
}

const FIRST_BYTES = 4096;

/**
 * `onPiece` refuses the body by throwing; the rest of it then stays unread. Rejects with that
 * error, or when the body ends early or `signal` aborts: Node closes no request that was answered
 * before its body had ended.
 */
export function collectBody(
  message: Readable,
  onPiece: (progress: BodyProgress) => void,
  signal?: AbortSignal,
): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  let content: Buffer = Buffer.alloc(0);
  let bytes = 0;
  let pieces = 0;
  const onData = (piece: Buffer) => {
    pieces += 1;
    try {
      onPiece({ bytes: bytes + piece.length, pieces });
    } catch (error) {
      message.off('data', onData).pause();
      reject(error);
      return;
    }
    content = withRoom(content, bytes, bytes + piece.length);
    piece.copy(content, bytes);
    bytes += piece.length;
  };
  const onEnd = () => resolve(content.subarray(0, bytes));
  const onClose = () => {
    message.off('data', onData);
    reject(new Error('the connection was closed'));
  };
  if (message.readableEnded) onEnd();
  else if (message.destroyed || signal?.aborted === true) onClose();
  else {
    signal?.addEventListener('abort', onClose, { once: true });
    message.on('end', onEnd).on('error', reject).on('close', onClose).on('data', onData);
  }
  return promise;
}

/** A buffer of at least `needed` bytes that begins with the first `used` bytes of this one. */
function withRoom(buffer: Buffer, used: number, needed: number): Buffer {
  if (needed <= buffer.length) return buffer;
  const larger = Buffer.allocUnsafe(Math.max(needed, 2 * buffer.length, FIRST_BYTES));
  buffer.copy(larger, 0, 0, used);
  return larger;
}

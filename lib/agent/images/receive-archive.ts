/**
 * Writes an archive that comes as a stream: one that is sent here, or a file of this server. A
 * stream that stalls is ended, because it holds one of the few loads.
 */
import { Readable } from 'node:stream';
import type { Clock } from '../../platform/time/clock.ts';
import { untilAborted } from '../../platform/time/until-aborted.ts';
import { ArchiveFile, type ArchiveLimits, type Arrived, STALLED_MS } from './archive-file.ts';
import { ImageSourceError } from './image-errors.ts';

interface ReceiveRequest extends ArchiveLimits {
  /** Where it is written; nothing is there yet. */
  file: string;
  digest: string | undefined;
  signal: AbortSignal;
}

/** @throws InvalidImageError, NoImageSpaceError, ImageSourceError, or the error of the stream */
export async function receiveArchive(
  archive: AsyncIterable<Buffer>,
  request: ReceiveRequest,
  { clock }: { clock: Clock },
): Promise<Arrived> {
  const file = await ArchiveFile.open(request.file, request);
  const pieces = archive[Symbol.asyncIterator]();
  try {
    for (;;) {
      const { value, done } = await nextPiece(pieces, request.signal, clock);
      if (done === true) break;
      await file.append(value);
    }
    return await file.complete(request.digest);
  } catch (error) {
    // An iterator answers `return` only after the piece that does not come; destroy ends both.
    if (archive instanceof Readable) archive.destroy();
    void pieces.return?.().catch(() => undefined);
    throw error;
  } finally {
    await file.close();
  }
}

/** Pieces without a byte are skipped. */
async function nextPiece(
  pieces: AsyncIterator<Buffer>,
  signal: AbortSignal,
  clock: Clock,
): Promise<IteratorResult<Buffer>> {
  const stalled = new AbortController();
  const timer = clock.after(STALLED_MS, () =>
    stalled.abort(new ImageSourceError(`nothing of the archive came for ${STALLED_MS / 1000} s; send it again`)),
  );
  try {
    for (;;) {
      const next = await untilAborted(pieces.next(), AbortSignal.any([signal, stalled.signal]));
      if (next.done === true || next.value.length > 0) return next;
    }
  } finally {
    timer.cancel();
  }
}

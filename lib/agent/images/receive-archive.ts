/** Writes an archive that comes as a stream: one that is sent here, or a file of this server. */
import { ArchiveFile, type ArchiveLimits, type Arrived } from './archive-file.ts';

interface ReceiveRequest extends ArchiveLimits {
  /** Where it is written; nothing is there yet. */
  file: string;
  digest: string | undefined;
  signal: AbortSignal;
}

/** @throws InvalidImageError, NoImageSpaceError, or the error of the stream */
export async function receiveArchive(archive: AsyncIterable<Buffer>, request: ReceiveRequest): Promise<Arrived> {
  const file = await ArchiveFile.open(request.file, request);
  try {
    for await (const piece of archive) {
      request.signal.throwIfAborted();
      await file.append(piece);
    }
    return await file.complete(request.digest);
  } finally {
    await file.close();
  }
}

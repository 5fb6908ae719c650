/** Writes the log of a VM to the stream of a caller. Used by `vm_logs` and `vm_console`. */
import { untilAborted } from '../../../platform/time/until-aborted.ts';
import type { LogPosition } from '../../containers/logs/last-lines.ts';
import { splitIntoPieces } from '../../containers/logs/log-pieces.ts';
import type { JoinedStream } from '../../streams/joined-stream.ts';
import { written } from '../../streams/run-on-stream.ts';
import type { Vms } from '../vms.ts';

type LogRequest = Omit<NonNullable<Parameters<Vms['readLog']>[1]>, 'signal' | 'skipped'>;

/** Bytes after the beginning that the caller has received before. */
interface ReceivedBytes {
  stdout: number;
  stderr: number;
}

interface WrittenLog {
  vms: Pick<Vms, 'readLog'>;
  uuid: string;
  signal: AbortSignal;
  received?: ReceivedBytes;
}

/**
 * Writes it as fast as the caller takes it. Resolves at the end of the log. @throws VmError, the
 * signal's reason
 */
export async function writeLog(
  stream: Pick<JoinedStream, 'stdout' | 'stderr'>,
  { vms, uuid, signal, received = { stdout: 0, stderr: 0 } }: WrittenLog,
  { reached, ...request }: LogRequest,
): Promise<void> {
  let left = { ...received };
  let skipped = 0;
  let position: LogPosition | undefined;
  const write = (name: 'stdout' | 'stderr', bytes: Buffer) => untilAborted(written(stream[name], bytes), signal);
  const writeRest = async (name: 'stdout' | 'stderr', bytes: Buffer) => {
    const known = Math.min(left[name], bytes.length);
    left[name] -= known;
    if (known < bytes.length) await write(name, bytes.subarray(known));
  };
  /**
   * The position comes after the note, so that a caller that continues does not count the note as
   * bytes of the log.
   */
  const writeSkipped = async () => {
    if (skipped === 0) return;
    await write('stderr', Buffer.from(`cnapi: ${skipped} files of the log were removed unread\n`));
    skipped = 0;
    if (position !== undefined) reached?.(position);
  };
  const lines = vms.readLog(uuid, {
    ...request,
    signal,
    reached(place) {
      position = place;
      if (skipped === 0) reached?.(place);
    },
    skipped(files) {
      skipped += files;
      // What the caller has received was in the files that are gone; nothing after them is known to
      // it.
      left = { stdout: 0, stderr: 0 };
    },
  });
  for await (const entries of lines) {
    await writeSkipped();
    for (const { stream: name, bytes } of splitIntoPieces(entries)) await writeRest(name, bytes);
  }
  signal.throwIfAborted();
  await writeSkipped();
}

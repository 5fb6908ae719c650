/** Writes the log of a VM to the stream of a caller. Used by `vm_logs` and `vm_console`. */
import { untilAborted } from '../../platform/time/until-aborted.ts';
import { piecesOf } from '../containers/logs/log-pieces.ts';
import type { JoinedStream } from '../streams/joined-stream.ts';
import type { Vms } from '../vms/vms.ts';
import { written } from './run-on-stream.ts';

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

/** Writes it as fast as the caller takes it. Resolves at the end of the log. @throws VmError, the signal's reason */
export async function writeLog(
  stream: Pick<JoinedStream, 'stdout' | 'stderr'>,
  { vms, uuid, signal, received = { stdout: 0, stderr: 0 } }: WrittenLog,
  request: LogRequest,
): Promise<void> {
  const left = { ...received };
  const write = async (name: 'stdout' | 'stderr', bytes: Buffer) => {
    const known = Math.min(left[name], bytes.length);
    left[name] -= known;
    if (known < bytes.length) await untilAborted(written(stream[name], bytes.subarray(known)), signal);
  };
  let skipped = 0;
  const lines = vms.readLog(uuid, {
    ...request,
    signal,
    skipped: (files) => {
      skipped += files;
    },
  });
  for await (const entries of lines) {
    for (const { stream: name, bytes } of piecesOf(entries)) await write(name, bytes);
    if (skipped > 0) await write('stderr', Buffer.from(`cnapi: ${skipped} files of the log were removed unread\n`));
    skipped = 0;
  }
  signal.throwIfAborted();
}

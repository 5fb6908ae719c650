/**
 * `vm_console {uuid, stream, read_only?, terminal?}` → `{}`. Attaches a stream to the terminal in
 * which the VM's own program runs, until the VM stops. The last that it has printed comes first.
 * The last caller that attaches without `read_only` writes; those before it go on reading.
 */
import { z } from 'zod';
import { streamPlace, type Terminal, type TerminalSize, terminal } from '../../../protocol/streams/stream.ts';
import { vmUuid } from '../../../protocol/vms.ts';
import type { RunConsole } from '../../containers/runtime.ts';
import { defineTask } from '../../runner/task-definition.ts';
import type { JoinedStream } from '../../streams/joined-stream.ts';
import { runOnStream } from '../../streams/run-on-stream.ts';
import type { ConsoleWriter } from '../vm-consoles.ts';
import type { Vms } from '../vms.ts';
import { requireVms } from './vm-tasks.ts';
import { writeLog } from './write-log.ts';

interface Attached {
  console: RunConsole;
  writer: ConsoleWriter;
  terminal: Terminal | undefined;
}

const params = z.object({
  uuid: vmUuid,
  stream: streamPlace,
  read_only: z.boolean().default(false),
  terminal: terminal.optional(),
});

/** How much earlier output a caller is shown, in bytes of the files of the log. */
const BACKLOG_BYTES = 16 * 1024;
/** A caller who types sees the answer after this time at the latest. */
const POLL_MS = 2;
const REPLACED = '\r\ncnapi: another caller writes to this console now; this one only reads\r\n';
const BROKEN = '\r\ncnapi: the input of this console has broken; this one only reads; attach again to write\r\n';

export const vmConsole = defineTask({
  lane: 'streams',
  params,
  run({ uuid, stream: place, read_only: isReadOnly, terminal }, context) {
    const attach = async (stream: JoinedStream, signal: AbortSignal) => {
      const vms = requireVms(context);
      const console = await vms.consoles.get(uuid);
      const writer = isReadOnly ? undefined : await vms.consoles.take(uuid, console);
      if (writer !== undefined) passInput(stream, { console, writer, terminal });
      else stream.stdin.resume();
      try {
        await showOutput(stream, vms, { uuid, signal });
      } finally {
        writer?.close();
      }
      return {};
    };
    return runOnStream(place, context, attach, 'The stream of the console broke; the VM runs on');
  },
});

const showOutput = (stream: JoinedStream, vms: Vms, { uuid, signal }: { uuid: string; signal: AbortSignal }) =>
  writeLog(stream, { vms, uuid, signal }, { follow: true, from: { bytes: BACKLOG_BYTES }, pollMs: POLL_MS });

/**
 * Until the input has ended or breaks, another caller writes, or the VM has stopped. What comes
 * then is dropped.
 */
function passInput(stream: JoinedStream, { console, writer, terminal }: Attached): void {
  let isWriting = true;
  const resize = (size: TerminalSize) => {
    // The run has just ended if this fails.
    if (isWriting) void console.resize(size).catch(() => undefined);
  };
  const stop = () => {
    writer.close();
    stream.stderr.write(REPLACED);
  };
  if (terminal !== undefined) resize(terminal);
  stream.onResize(resize);
  stream.stdin.pipe(writer.input);
  void writer.ended.then((end) => {
    isWriting = false;
    stream.stdin.unpipe(writer.input).resume();
    if (end === 'broken') stream.stderr.write(BROKEN);
  });
  if (writer.replaced.aborted) stop();
  else writer.replaced.addEventListener('abort', stop, { once: true });
}

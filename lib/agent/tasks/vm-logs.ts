/**
 * `vm_logs {uuid, stream, follow?, tail?}` → `{}`. Writes what the program of a VM has printed to a
 * stream, from the first line that is kept or from the last `tail` lines. With `follow` it continues
 * until the VM stops or is deleted.
 */
import { z } from 'zod';
import { untilAborted } from '../../platform/time/until-aborted.ts';
import { streamPlace } from '../../protocol/streams/stream.ts';
import { vmUuid } from '../../protocol/vms.ts';
import { piecesOf } from '../containers/logs/log-pieces.ts';
import { runOnStream, written } from './run-on-stream.ts';
import { defineTask } from './task.ts';
import { vmsOf } from './vm-tasks.ts';

const params = z.object({
  uuid: vmUuid,
  stream: streamPlace,
  follow: z.boolean().default(false),
  tail: z.int().min(0).optional(),
});

export const vmLogs = defineTask({
  lane: 'streams',
  params,
  run({ uuid, stream: place, follow, tail }, context) {
    return runOnStream(place, context, async (stream, signal) => {
      const write = (name: 'stdout' | 'stderr', bytes: Buffer) => untilAborted(written(stream[name], bytes), signal);
      let skipped = 0;
      const lines = vmsOf(context).readLog(uuid, {
        follow,
        signal,
        skipped: (files) => {
          skipped += files;
        },
        ...(tail === undefined ? {} : { from: { lines: tail } }),
      });
      for await (const entries of lines) {
        for (const { stream: name, bytes } of piecesOf(entries)) await write(name, bytes);
        if (skipped > 0) await write('stderr', Buffer.from(`cnapi: ${skipped} files of the log were removed unread\n`));
        skipped = 0;
      }
      signal.throwIfAborted();
      return {};
    });
  },
});

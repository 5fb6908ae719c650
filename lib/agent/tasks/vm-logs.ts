/**
 * `vm_logs {uuid, stream, follow?, tail?}` → `{}`. Writes what the program of a VM has printed to a
 * stream, from the first line that is kept or from the last `tail` lines. With `follow` it continues
 * until the VM stops or is deleted.
 */
import { z } from 'zod';
import { streamPlace } from '../../protocol/streams/stream.ts';
import { vmUuid } from '../../protocol/vms.ts';
import { runOnStream } from './run-on-stream.ts';
import { defineTask } from './task.ts';
import { requireVms } from './vm-tasks.ts';
import { writeLog } from './write-log.ts';

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
      const from = tail === undefined ? undefined : { lines: tail };
      await writeLog(stream, { vms: requireVms(context), uuid, signal }, { follow, from });
      return {};
    });
  },
});

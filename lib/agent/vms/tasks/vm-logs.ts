/**
 * `vm_logs {uuid, stream, follow?, tail?, resume?}` → `{}`. Writes what the program of a VM has
 * printed to a stream, from the first line that is kept or from the last `tail` lines. With
 * `follow` it continues until the VM stops or is deleted.
 */
import { z } from 'zod';
import { type LogPlace, logResume, streamPlace } from '../../../protocol/streams/stream.ts';
import { vmUuid } from '../../../protocol/vms.ts';
import { defineTask } from '../../runner/task-definition.ts';
import { runOnStream } from '../../streams/run-on-stream.ts';
import { requireVms } from './vm-tasks.ts';
import { writeLog } from './write-log.ts';

const params = z.object({
  uuid: vmUuid,
  stream: streamPlace,
  follow: z.boolean().default(false),
  tail: z.int().min(0).optional(),
  resume: logResume.optional(),
});

export const vmLogs = defineTask({
  lane: 'streams',
  params,
  run({ uuid, stream: place, follow, tail, resume }, context) {
    return runOnStream(place, context, async (stream, signal) => {
      const from = resume ? { position: resume.position } : tail === undefined ? undefined : { lines: tail };
      const reached = (position: LogPlace) => stream.tellPosition(position);
      const received = resume ?? { stdout: 0, stderr: 0 };
      await writeLog(stream, { vms: requireVms(context), uuid, signal, received }, { follow, from, reached });
      return {};
    });
  },
});

/**
 * `vm_stats {uuid, stream, samples?}` → `{}`. Writes what a VM uses to a stream, once a second, as
 * lines of JSON; until there are as many `samples`, or the VM stops.
 */
import { z } from 'zod';
import { isoNow } from '../../../platform/time/clock.ts';
import { untilAborted } from '../../../platform/time/until-aborted.ts';
import { streamPlace } from '../../../protocol/streams/stream.ts';
import type { VmSample } from '../../../protocol/streams/vm-sample.ts';
import { vmUuid } from '../../../protocol/vms.ts';
import { defineTask, pause, type TaskContext } from '../../runner/task-definition.ts';
import { runOnStream, written } from '../../streams/run-on-stream.ts';
import { VmError, vmStateError } from '../vm-errors.ts';
import { requireVms } from './vm-tasks.ts';

const EVERY_MS = 1_000;

export const vmStats = defineTask({
  lane: 'streams',
  params: z.object({ uuid: vmUuid, stream: streamPlace, samples: z.int().min(1).optional() }),
  run({ uuid, stream: place, samples = Number.POSITIVE_INFINITY }, context) {
    return runOnStream(place, context, async ({ stdout }, signal) => {
      for (let number = 1; number <= samples; number += 1) {
        const sample = await sampleOf(uuid, context);
        // That it does not run is only a failure at the beginning.
        if (sample === undefined && number > 1) return {};
        if (sample === undefined) throw vmStateError(uuid, 'VmNotRunning');
        await untilAborted(written(stdout, Buffer.from(`${JSON.stringify(sample)}\n`)), signal);
        if (number < samples) await pause(EVERY_MS, { ...context, signal });
      }
      return {};
    });
  },
});

/** Undefined if the VM does not run or was deleted. */
async function sampleOf(uuid: string, context: TaskContext): Promise<VmSample | undefined> {
  const { clock } = context;
  try {
    return { at: isoNow(clock), clock_ms: clock.now(), ...(await requireVms(context).running.sample(uuid)) };
  } catch (error) {
    if (error instanceof VmError && (error.code === 'VmNotRunning' || error.code === 'VmNotFound')) return undefined;
    throw error;
  }
}

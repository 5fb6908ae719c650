/**
 * `server_reboot {drain?}`: reboots the machine, if the agent was started with --allow-reboot.
 * `drain`: only if the server is drained for that job.
 */
import { z } from 'zod';
import { notAllowed } from '../../runner/not-allowed.ts';
import { defineTask } from '../../runner/task-definition.ts';

export const serverReboot = defineTask({
  lane: 'serial',
  // Whoever empties a server before it is rebooted has paused its agent.
  whilePaused: true,
  params: z.object({ drain: z.uuid().optional() }),
  async run({ drain }, { machine, allowReboot, confirmDrain }) {
    if (!allowReboot) throw notAllowed('reboot');
    if (drain !== undefined) await confirmDrain(drain);
    await machine.reboot();
    return {};
  },
});

/**
 * `server_reboot {drain?}`: reboots the machine, if the agent was started with --allow-reboot.
 * `drain`: only if the server is drained for that job.
 */
import { z } from 'zod';
import { notAllowed } from '../../runner/not-allowed.ts';
import { defineTask } from '../../runner/task-definition.ts';
import { whileDrained } from '../../runner/while-drained.ts';

export const serverReboot = defineTask({
  lane: 'serial',
  // Whoever empties a server before it is rebooted has paused its agent.
  whilePaused: true,
  params: z.object({ drain: z.uuid().optional() }),
  async run({ drain }, context) {
    const { machine, allowReboot } = context;
    if (!allowReboot) throw notAllowed('reboot');
    if (drain === undefined) await machine.reboot();
    else await whileDrained(drain, context, () => machine.reboot());
    return {};
  },
});

/** `server_reboot`: reboots the machine, if the agent was started with --allow-reboot. */
import { z } from 'zod';
import { TaskFailure } from '../task-failure.ts';
import { defineTask } from './task.ts';

export const serverReboot = defineTask({
  lane: 'serial',
  // Whoever empties a server before it is rebooted has paused its agent.
  whilePaused: true,
  params: z.object({}),
  async run(_params, { machine, allowReboot }) {
    if (!allowReboot) throw new TaskFailure('RebootNotAllowed', 'This agent was started without --allow-reboot');
    await machine.reboot();
    return {};
  },
});

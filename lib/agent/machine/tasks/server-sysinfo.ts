/** `server_sysinfo` → `{sysinfo}`: reads the machine's sysinfo. */
import { z } from 'zod';
import { defineTask } from '../../runner/task-definition.ts';

export const serverSysinfo = defineTask({
  lane: 'control',
  // It changes nothing.
  whilePaused: true,
  params: z.object({}),
  run: async (_params, { machine }) => ({ sysinfo: await machine.sysinfo() }),
});

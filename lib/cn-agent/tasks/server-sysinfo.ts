/** `server_sysinfo` → `{sysinfo}`: what the machine is, read anew. */
import { z } from 'zod';
import { defineTask } from './task.ts';

export const serverSysinfo = defineTask({
  lane: 'control',
  params: z.object({}),
  run: async (_params, { machine }) => ({ sysinfo: await machine.sysinfo() }),
});

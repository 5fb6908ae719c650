/**
 * `server_update_nics {nics, action?}` → `{nics}`: changes the NIC tags that sysinfo shows. The
 * network of the machine stays as it is.
 */
import { z } from 'zod';
import { NIC_ACTIONS, nicChanges } from '../../../protocol/nics.ts';
import { defineTask } from '../../runner/task-definition.ts';
import { requireSettings } from './require-settings.ts';

export const serverUpdateNics = defineTask({
  lane: 'serial',
  // Callers of Triton's CNAPI send all tags of the NICs, and no action.
  params: z.object({ action: z.enum(NIC_ACTIONS).default('replace'), nics: nicChanges() }),
  async run({ action, nics }, context) {
    const { machine } = context;
    const tags = await requireSettings(context).changeNics(action, nics, await machine.sysinfo());
    return { nics: nics.map(({ mac }) => ({ mac, nic_tags_provided: tags[mac] ?? [] })) };
  },
});

/** `recovery_config`: stages or activates a recovery configuration. */
import { z } from 'zod';
import { MAX_RECOVERY_TOKEN_CHARS, MAX_TEMPLATE_CHARS } from '../../protocol/recovery.ts';
import { defineTask, type TaskContext, type TaskDefinitions } from '../runner/task-definition.ts';
import { TaskFailure } from '../task-failure.ts';
import type { RecoveryKeeper } from './recovery-keeper.ts';

const token = z.string().min(1).max(MAX_RECOVERY_TOKEN_CHARS);
const missing = (name: string) => new TaskFailure('InvalidParameters', `Parameter ${name}: a stage needs it`);

export const recoveryTasks = {
  recovery_config: defineTask({
    lane: 'serial',
    params: z.object({
      action: z.enum(['stage', 'activate']),
      recovery_uuid: z.uuid().toLowerCase(),
      pivtoken: token,
      template: z.string().min(1).max(MAX_TEMPLATE_CHARS).optional(),
      token: token.optional(),
    }),
    async run({ action, recovery_uuid: uuid, pivtoken, template, token }, context) {
      const recovery = recoveryOf(context);
      if (action === 'activate') await recovery.activate(uuid);
      else if (template === undefined) throw missing('template');
      else if (token === undefined) throw missing('token');
      else await recovery.stage({ uuid, template, token, pivtoken });
      return {};
    },
  }),
} satisfies TaskDefinitions;

function recoveryOf({ recovery }: TaskContext): RecoveryKeeper {
  if (recovery !== undefined) return recovery;
  throw new TaskFailure('UnknownTask', 'This server has no encrypted zpool');
}

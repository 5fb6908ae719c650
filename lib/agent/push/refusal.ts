/** Why an agent does not run the command of a push job, before its state is looked at. */
import type { PushPrepareFrame } from '../../protocol/link/frames.ts';
import type { PushRefusal } from '../../protocol/push.ts';
import type { Machine } from '../machine/machine.ts';
import { TaskFailure } from '../task-failure.ts';
import type { AllowedCommands } from './allow-list.ts';
import { prepareCommand } from './prepared-command.ts';

export interface PrepareRefusal {
  reason: PushRefusal;
  message: string;
}

interface RefusalDeps {
  machine: Pick<Machine, 'reasonNotRunnable'>;
  /** Why this agent starts no tasks at present, and how that ends. */
  reasonPaused: string | undefined;
  /** Undefined: every command is allowed. */
  allowed: AllowedCommands | undefined;
}

export async function refusalOf(
  prepare: PushPrepareFrame,
  { machine, reasonPaused, allowed }: RefusalDeps,
): Promise<PrepareRefusal | undefined> {
  if (reasonPaused !== undefined)
    return { reason: 'paused', message: `this agent is paused and starts no commands: ${reasonPaused}` };
  const rule = allowed?.reasonNotAllowed(prepare);
  if (rule !== undefined) return { reason: 'not-allowed', message: rule };
  try {
    const message = await machine.reasonNotRunnable(prepareCommand(prepare));
    return message === undefined ? undefined : { reason: 'bad-options', message };
  } catch (error) {
    if (error instanceof TaskFailure) return { reason: 'bad-options', message: error.message };
    throw error;
  }
}

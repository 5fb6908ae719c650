/** Why an agent does not run the command of a push job, before its state is looked at. */
import type { PushPrepareFrame, PushRefusal } from '../../protocol/frames.ts';
import type { Machine } from '../machine/machine.ts';
import { TaskFailure } from '../runner/task-end.ts';
import { commandOf } from './prepared-command.ts';

export interface Refusal {
  reason: PushRefusal;
  message: string;
}

export async function refusalOf(
  prepare: PushPrepareFrame,
  { machine }: { machine: Pick<Machine, 'refusalOf'> },
): Promise<Refusal | undefined> {
  try {
    const message = await machine.refusalOf(commandOf(prepare));
    return message === undefined ? undefined : { reason: 'bad-options', message };
  } catch (error) {
    if (error instanceof TaskFailure) return { reason: 'bad-options', message: error.message };
    throw error;
  }
}

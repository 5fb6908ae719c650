/**
 * `server_factory_reset {drain}`: if the server is drained for that job, runs the program that the
 * agent's configuration names for it; the agent itself resets nothing. From before the program
 * starts, the server is not set up and has no NIC tags: what becomes of a machine whose reset was
 * cut off is not known, and no VM belongs on it.
 */
import { z } from 'zod';
import type { CommandResult } from '../../machine/machine.ts';
import { notAllowed } from '../../runner/not-allowed.ts';
import { defineTask, type TaskContext } from '../../runner/task-definition.ts';
import { whileDrained } from '../../runner/while-drained.ts';
import { TaskFailure } from '../../task-failure.ts';
import { requireSettings } from './require-settings.ts';
import { failedScript } from './server-setup.ts';

export const serverFactoryReset = defineTask({
  lane: 'serial',
  startsItself: true,
  // Whoever empties a server before it is reset has paused its agent.
  whilePaused: true,
  params: z.object({ drain: z.uuid() }),
  async run({ drain }, context) {
    const program = context.setupRules?.resetProgram;
    if (program === undefined) throw notAllowed('factory-reset');
    const result = await whileDrained(drain, context, () => reset(program, context));
    // The machine may be gone before the job could do that.
    await context.changePause({ type: 'end-drain', jobId: drain });
    return result;
  },
});

async function reset(program: string, context: TaskContext): Promise<Omit<CommandResult, 'killed'>> {
  const { id, machine, vms, signal, begin, output } = context;
  const count = vms?.list().length ?? 0;
  if (count > 0) throw new TaskFailure('ServerHasVms', `This server has VMs (${count}); delete them before its reset`);
  await requireSettings(context).reset();
  const command = { script: 'exec "$1"\n', args: [program], env: {} };
  const { killed, ...result } = await machine.execute(command, { id, signal, begin, output });
  if (killed) throw new TaskFailure(signal.reason.code, signal.reason.message, { result });
  if (result.exitCode !== 0) throw failedScript('FactoryResetFailed', `The program ${program}`, result);
  return result;
}

/**
 * `push_command {job}`: runs the command of a push job for which this agent has voted. The job's
 * agents were given the command when they were asked; here it starts. The result is that of
 * `command_execute`. A command that had to be killed is a failure that carries its output.
 */
import { z } from 'zod';
import { defineTask, type TaskDefinitions } from '../runner/task-definition.ts';
import { TaskFailure } from '../task-failure.ts';
import { prepareCommand } from './prepared-command.ts';

export const pushTasks = {
  push_command: defineTask({
    lane: 'parallel',
    startsItself: true,
    params: z.object({ job: z.string() }),
    async run({ job: jobId }, context) {
      const { id, machine, begin, output, pushJobs, changeTimeout } = context;
      const { prepare, signal: aborted, ended } = pushJobs.begin(jobId, changeTimeout);
      const signal = AbortSignal.any([context.signal, aborted]);
      try {
        const command = prepareCommand(prepare);
        const env = { ...command.env, CHEF_PUSH_JOB_ID: jobId, CHEF_PUSH_NODE_NAME: machine.hostname };
        const { killed, ...result } = await machine.execute({ ...command, env }, { id, signal, begin, output });
        if (!killed) return result;
        throw new TaskFailure(signal.reason.code, signal.reason.message, { result });
      } finally {
        ended();
      }
    },
  }),
} satisfies TaskDefinitions;

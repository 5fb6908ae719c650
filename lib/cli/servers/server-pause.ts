/** `cnapi server pause` and `cnapi server resume`: whether the agent of a server takes tasks. */
import { Command } from 'commander';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import { runServerTask } from '../vms/vm-task.ts';

const PAUSE = `
Tasks that run go on. The pause ends by cnapi server resume, or when the agent restarts.
`;

const RESUME = `
It also ends the pause of a workflow job that drains the server. Such a job does not reboot or reset a server that is not drained.
`;

const SERVER = ['<server>', 'uuid, the beginning of one, or hostname'] as const;

export function pauseServerCommand(runner: CommandRunner): Command {
  const command = new Command('pause')
    .description('Makes the agent of a server refuse new tasks, and waits until it does.')
    .argument(...SERVER)
    .action(
      runner.action((context, [name]) => {
        const server = String(name);
        const failed = `${server} could not be paused`;
        const report = { done: `${server} is paused; cnapi server resume ends that`, failed, detach: false };
        return runServerTask(context, server, { task: 'agent_pause', params: {}, ...report });
      }),
    );
  return withExamples(withExplanation(command, PAUSE), ['cnapi server pause web-1']);
}

export function resumeServerCommand(runner: CommandRunner): Command {
  const command = new Command('resume')
    .description('Lets the agent of a paused server take tasks again.')
    .argument(...SERVER)
    .action(
      runner.action((context, [name]) => {
        const server = String(name);
        const report = { done: `${server} takes tasks`, failed: `${server} could not be resumed`, detach: false };
        return runServerTask(context, server, { task: 'agent_resume', params: {}, ...report });
      }),
    );
  return withExamples(withExplanation(command, RESUME), ['cnapi server resume web-1']);
}

/** `cnapi version`: shows the version of this program and of the instance that answers. */
import { Command } from 'commander';
import { NoAnswerError } from '../../client/client-errors.ts';
import { VERSION } from '../../platform/version.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';

export function versionCommand(runner: CommandRunner): Command {
  const command = new Command('version')
    .description('Shows the version of this program, and that of the instance that answers, if one does.')
    .action(runner.action(version));
  return withExamples(command, ['cnapi version --json']);
}

async function version({ client, output }: Context): Promise<void> {
  const instance = await client.info().catch((error: unknown) => {
    if (error instanceof NoAnswerError) return undefined;
    throw error;
  });
  if (output.json) return output.document({ cnapi: VERSION, instance: instance ?? null });
  output.line(`cnapi ${VERSION}`);
  if (instance === undefined) output.note('no instance answers');
  else output.line(`instance ${instance.version} at ${instance.address}`);
}

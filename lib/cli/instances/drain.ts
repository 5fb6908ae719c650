/** `cnapi drain`: takes an instance out of service in an orderly way. */
import { Command } from 'commander';
import type { CnapiClient } from '../../client/client.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findInstance } from '../lookup/find.ts';
import { EXIT } from '../terminal/command-errors.ts';
import { shortDuration } from '../terminal/duration.ts';

const LOOK_MS = 500;
/** The default configuration ends a drain after 75 s at most, and the lease 5 s later. */
const WITHIN_MS = 90_000;

export function drainCommand(runner: CommandRunner): Command {
  const command = new Command('drain')
    .description(
      'Drains an instance: its agents move to the others, it answers its open requests, then it stops. Its service manager may start it again.',
    )
    .argument('<instance>', 'its uuid, the beginning of it, or HOST:PORT')
    .option(
      '--wait',
      'wait until it has stopped, at most 90 s; exit code 1 if it has not. If you interrupt this, the drain continues',
    )
    .action(runner.action(drain));
  return withExamples(command, ['cnapi drain 10.0.0.11:8080 --wait']);
}

async function drain(
  { client, output, clock }: Context,
  [name]: readonly unknown[],
  { wait = false }: { wait?: boolean },
): Promise<number> {
  const { uuid, run } = findInstance(await client.learnInstances(), String(name));
  const drained = await client.drain(uuid);
  if (!wait) {
    if (output.json) output.document(drained);
    else output.line(`${uuid} is draining`);
    return EXIT.ok;
  }
  const start = clock.now();
  let agents: number | undefined;
  while (clock.now() - start < WITHIN_MS) {
    const still = await stillThere(client, uuid, run);
    if (still === undefined) {
      const took = clock.now() - start;
      if (output.json) output.document({ ...drained, state: 'stopped', took_ms: Math.round(took) });
      else output.line(`${uuid} has stopped after ${shortDuration(took)}`);
      return EXIT.ok;
    }
    if (still.agents !== agents) output.note(`${still.state}, ${still.agents} agents`);
    agents = still.agents;
    await clock.sleep(LOOK_MS);
  }
  output.complain(`${uuid} is still running after ${shortDuration(WITHIN_MS)}; its log shows what it waits for`);
  return EXIT.failed;
}

/** Looks for the same run: an instance that was restarted meanwhile has another run. */
async function stillThere(client: CnapiClient, uuid: string, run: unknown) {
  return (await client.instances()).find((one) => one.uuid === uuid && one.run === run);
}

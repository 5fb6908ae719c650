/**
 * `cnapi server setup` and `cnapi server factory-reset`: set up and reset a server by workflow
 * jobs.
 */
import { readFile } from 'node:fs/promises';
import { Command } from 'commander';
import { serverSetupContracts } from '../../protocol/api/server-setup.ts';
import { type CommandRunner, collectValues, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServer } from '../lookup/find.ts';
import { EXIT, RefusedError, UsageError, unreadable } from '../terminal/command-errors.ts';
import { showCreatedWorkflow } from '../workflows/follow-workflow.ts';
import { confirmServer, YES } from './confirm-server.ts';
import { NIC_HELP, parseNicChanges } from './nic-changes.ts';

const JOB = `
It prints the uuid of the workflow job. With --wait, Ctrl-C or a lost terminal ends this program and not the job.

Exit codes with --wait: 0 the job succeeded; 1 it failed or was cancelled.
`;

const SETUP = `
A server that is set up may be chosen for VMs. The agent must have been started with --allow-setup to give the machine another \
name, or to run a script on it. A set-up that failed can be repeated; one of a server that is set up does nothing, and is refused \
if it asks for another name, a script or NIC tags.
${JOB}`;

const RESET = `
The server is not set up any more, and its agent runs the program that --factory-reset of the agent names; without one the request \
is refused. In a terminal it asks for the hostname first; elsewhere --yes is needed. The agent then takes no new tasks, and the job waits up to 15 minutes for those that run. A server with VMs is refused.
${JOB}`;

interface SetupOptions {
  hostname?: string;
  script?: string;
  secretScript?: boolean;
  nic?: string[];
  wait?: boolean;
}

const WAIT = ['--wait', 'wait for the end of the job, with the progress on stderr'] as const;
const SERVER = ['<server>', 'uuid, the beginning of one, or hostname'] as const;

export function setUpServerCommand(runner: CommandRunner): Command {
  const command = new Command('setup')
    .description('Sets a server up: gives it a name and runs a script on it.')
    .argument(...SERVER)
    .option('--hostname <name>', 'the name that the server and its machine are given')
    .option('--script <file>', 'a script that its agent runs; it must end with exit code 0')
    .option('--secret-script', 'only the agent sees the script')
    .option('--nic <nic=tags>', `gives a NIC exactly these NIC tags; ${NIC_HELP}`, collectValues)
    .option(...WAIT)
    .action(runner.action(setUp));
  return withExamples(withExplanation(command, SETUP), [
    'cnapi server setup 564d --hostname web-7 --wait',
    'cnapi server setup web-7 --script ./post-setup.sh --nic eth0=admin,external',
  ]);
}

export function resetServerCommand(runner: CommandRunner): Command {
  const command = new Command('factory-reset')
    .description('Resets a server to what it was before its set-up.')
    .argument(...SERVER)
    .option(...YES)
    .option(...WAIT)
    .action(runner.action(reset));
  return withExamples(withExplanation(command, RESET), [
    'cnapi server factory-reset web-7 --wait',
    'cnapi server factory-reset web-7 --yes',
  ]);
}

async function setUp(context: Context, [name]: readonly unknown[], options: SetupOptions): Promise<number> {
  const { client, output } = context;
  const { hostname, script: file, secretScript = false, nic, wait } = options;
  if (secretScript && file === undefined) throw new UsageError('--secret-script needs --script');
  const { uuid: server_uuid } = await findServer(client, String(name));
  const server = await client.server(server_uuid);
  if (server.setup === true) {
    const label = server.hostname ?? server_uuid;
    const isOther = hostname !== undefined && hostname !== server.hostname;
    if (isOther || file !== undefined || nic !== undefined)
      throw new RefusedError(
        `Server ${label} is set up, so nothing was done; cnapi server nics changes NIC tags, and cnapi server factory-reset comes before another set-up`,
      );
    output.note(`server ${label} is set up; nothing was done`);
    return EXIT.ok;
  }
  const script = file === undefined ? undefined : await readFile(file, 'utf8').catch(unreadable('--script', file));
  const { job_uuid: uuid } = await client.documents(serverSetupContracts.SetupServer, {
    ...{ server_uuid, hostname, postsetup_script: script },
    ...(secretScript && { secret_params: ['/postsetup_script'] }),
    ...(nic && { nics: parseNicChanges(nic, server) }),
  });
  return showCreatedWorkflow(context, { uuid: String(uuid), wait });
}

interface ResetOptions {
  yes?: boolean;
  wait?: boolean;
}

async function reset(context: Context, [name]: readonly unknown[], { yes, wait }: ResetOptions): Promise<number> {
  const { client } = context;
  const { uuid: server_uuid } = await findServer(client, String(name));
  const { hostname = server_uuid } = await client.server(server_uuid);
  await confirmServer(context, { does: 'resets', name: String(hostname), yes });
  const answer = await client.documents(serverSetupContracts.FactoryResetServer, { server_uuid });
  return showCreatedWorkflow(context, { uuid: String(answer.job_uuid), wait });
}

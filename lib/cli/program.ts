/**
 * The command table: every command with its arguments and options, defined in the command's own
 * file. Those of documents are made from the declarations of their nouns.
 */
import { Command, Option } from 'commander';
import { VERSION } from '../platform/version.ts';
import { nounList } from '../protocol/api/all-contracts.ts';
import { auditCommand } from './access/audit.ts';
import { tokenCommand } from './access/token.ts';
import { agentsCommand } from './agents/agents.ts';
import { deploymentCommand } from './annealer/deployment.ts';
import { noderoleCommand } from './annealer/noderole.ts';
import { bootCommand } from './boot/boot.ts';
import { completeCommand, completionCommand } from './completion/completion.ts';
import { cpCommand } from './copy/cp.ts';
import { documentCommand } from './documents/document.ts';
import { eventsCommand } from './events/events.ts';
import { execCommand } from './exec/exec.ts';
import { portForwardCommand } from './exec/port-forward.ts';
import { imageCommand } from './images/image.ts';
import { doctorCommand } from './instances/doctor.ts';
import { drainCommand } from './instances/drain.ts';
import { instancesCommand } from './instances/instances.ts';
import { versionCommand } from './instances/version.ts';
import { type CommandRunner, collectValues, withExplanation } from './invocation/command-runner.ts';
import { HELP_WIDTH } from './invocation/help-text.ts';
import { lockCommand } from './lock/lock.ts';
import { ticketsCommand } from './lock/tickets.ts';
import { unlockCommand } from './lock/unlock.ts';
import { orgCommand } from './org/org.ts';
import { allocateCommand, capacityCommand } from './placement/allocate.ts';
import { jobCommand } from './push-jobs/job.ts';
import { nodeCommand } from './push-jobs/node.ts';
import { scheduleCommand } from './schedules/schedule.ts';
import { serverCommand } from './servers/server.ts';
import { serversCommand } from './servers/servers.ts';
import { cancelCommand } from './tasks/cancel.ts';
import { taskCommand } from './tasks/task.ts';
import { tasksCommand } from './tasks/tasks.ts';
import { vmCommand } from './vms/vm.ts';
import { watchCommand } from './watch/watch.ts';
import { workflowCommand } from './workflows/workflow.ts';
import { zfsCommand } from './zfs/zfs.ts';

const ABOUT = `
Where the instances are; the first of these that is set:
  1. --url URL
  2. --dns ADDRESS:PORT, --dns-name NAME
  3. CNAPI_URL
  4. CNAPI_DNS, CNAPI_DNS_NAME
  5. your npm start on this machine; if several run, you are asked to say which one
  6. http://127.0.0.1:8080
  If an instance does not answer, the next one is asked.
Who you are; the first of these that is set:
  CNAPI_TOKEN, the file named by CNAPI_TOKEN_FILE, the token of your own npm start (for its instances only), \
~/.config/cnapi/token. Token files must have mode 0600. CNAPI_CA_FILE names the CA for https.
Ids:
  Where a table is wider than the terminal, ids of tasks, tickets and instances are shown by their beginnings, which commands \
accept. To a pipe, in a file and with --json they are whole.
Durations:
  500ms, 90s, 10m, 1h30m, 2d. A number without a unit is seconds.
Signals:
  When the terminal is lost (SIGHUP) this program ends, but tasks and drains that it started continue. Under nohup it continues.
Exit codes:
  0 done; 1 failed or refused; 2 wrong usage: an option or a value in the command line is wrong, or a name or an id in it is \
unknown, and nothing was changed; 3 no instance answered. exec and lock have more; see their --help.
`;

/** `helpWidth`: columns of the help texts. */
export function createProgram(runner: CommandRunner, helpWidth = HELP_WIDTH): Command {
  const program = new Command('cnapi');
  program
    .description('Manages a fleet of servers: runs commands on them, holds locks, shows their state.')
    .addOption(
      new Option('--url <url>', 'an instance; for several, separate them by commas or repeat the option').argParser(
        collectValues,
      ),
    )
    .option('--dns <address:port>', "a name server that knows the instances (default: the system's)")
    .option('--dns-name <name>', 'the DNS name of the instances (default: cnapi.local.cnapi.internal)')
    .option('--tls', 'use TLS for instances found by DNS (also CNAPI_TLS=1)')
    .option(
      '--json',
      'print JSON for programs: one document, or one per line from a command that follows events or output',
    )
    .option('-q, --quiet', 'only errors on stderr')
    .option('--no-color', 'no colours (also NO_COLOR=1; none without a terminal)')
    .version(VERSION, '-V, --version', 'the version of this program')
    .helpOption('-h, --help', 'this text; cnapi COMMAND --help for a command');
  withExplanation(program, ABOUT);
  for (const create of COMMANDS) program.addCommand(create(runner));
  for (const noun of nounList) if (noun.hasOwnCommands !== true) program.addCommand(documentCommand(runner, noun));
  program.addCommand(completeCommand(runner, program), { hidden: true });
  for (const command of [program, ...allCommands(program)]) prepare(command, helpWidth);
  return program;
}

const COMMANDS = [
  serversCommand,
  serverCommand,
  agentsCommand,
  bootCommand,
  vmCommand,
  imageCommand,
  zfsCommand,
  allocateCommand,
  capacityCommand,
  execCommand,
  cpCommand,
  portForwardCommand,
  jobCommand,
  scheduleCommand,
  workflowCommand,
  nodeCommand,
  deploymentCommand,
  noderoleCommand,
  taskCommand,
  tasksCommand,
  cancelCommand,
  ticketsCommand,
  lockCommand,
  unlockCommand,
  instancesCommand,
  drainCommand,
  eventsCommand,
  auditCommand,
  tokenCommand,
  orgCommand,
  watchCommand,
  doctorCommand,
  completionCommand,
  versionCommand,
];

/** All commands except the program itself, depth first. */
export function allCommands(program: Command): Command[] {
  return program.commands.flatMap((command) => [command, ...allCommands(command)]);
}

/** Returns the help text of a command. */
export function buildHelp(command: Command): string {
  let text = '';
  command.configureOutput({ writeOut: (piece) => (text += piece) });
  command.outputHelp();
  return text;
}

function prepare(command: Command, helpWidth: number): void {
  if (command.commands.length > 0) command.helpCommand('help [command]', 'Shows the help of a command.');
  command
    .exitOverride()
    .showSuggestionAfterError(true)
    .helpOption('-h, --help', 'this text')
    .configureOutput({ outputError: () => undefined, getOutHelpWidth: () => helpWidth, getOutHasColors: () => false })
    .configureHelp({ sortSubcommands: false, helpWidth, minWidthToWrap: 20 });
}

/** `cnapi job start`: starts a push job and follows it. */
import { Command } from 'commander';
import type { NamedServer } from '../../protocol/api/servers.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findTargets, printServers, readServers, targetFieldsOf } from '../lookup/targets.ts';
import { EXIT, UsageError } from '../terminal/command-errors.ts';
import { followStarted } from './follow-job.ts';
import { buildJobBody, type PushJobOptions, requireCommand, withJobOptions } from './job-options.ts';
import { createSchedule } from './schedule-create.ts';

interface StartOptions extends PushJobOptions {
  at?: string;
  dryRun?: boolean;
  detach?: boolean;
}

const MORE = `
All servers are asked whether they can run the command. It starts when as many as --quorum says have said yes. If \
that number cannot be reached, it runs on no server. A server runs one push job at a time; one that is busy says no.

A single word after -- is passed to sh, so pipes and redirections work. Several words are a command and its arguments; they are \
passed on unchanged. It runs as \
the user of the agent, unless --user is given. CHEF_PUSH_JOB_ID in its environment is the id of the job.

--max-fail 3 or --max-fail 5%: when more nodes have failed, no further node starts, and the job ends as aborted. It needs \
--concurrency or --start-rate, because otherwise all nodes start concurrently.

Output is kept with each node's task, whatever the options: cnapi job output shows it. With --capture it is also shown live, each \
line with the name of its server, and the job has capture_output, which tells other programs that its output is wanted.

The first Ctrl-C asks whether to abort the job or to leave it running; without a terminal it aborts the job. The second one exits.

Exit codes: 0 the job is complete and every node that took part succeeded (nodes that are down or busy do not count: the quorum \
decides about them); 1 otherwise; 2 wrong usage, or an unknown name or id; 128 + N when signal N ended this program.
`;

export function startCommand(runner: CommandRunner): Command {
  const command = withJobOptions(
    new Command('start')
      .description('Starts a push job and follows it to its end.')
      .usage('[options] [query|server...] -- command [argument...]')
      .argument('[query|server...]', 'name=pattern as in --where; or uuids, beginnings of them, or hostnames'),
  )
    .option('--at <time>', 'start it later: 22:00, 90m (from now), or 2030-01-31T22:00:00Z; see cnapi schedule')
    .option('--dry-run', 'list the servers and start nothing')
    .option('--capture', 'show what the command writes on each server, as it writes it')
    .option('-d, --detach', 'print the id of the job and do not wait')
    .action(runner.action(start, { rest: true }));
  return withExamples(withExplanation(command, MORE), [
    "cnapi job start 'hostname=web-*' --quorum 80% -- uptime",
    "cnapi job start 'traits.role=web' 'status=running' --capture -- chef-client",
    'cnapi job start --all --concurrency 20 --max-fail 5% -- ./upgrade.sh',
    'cnapi job start --group web --quorum 80% -- ./upgrade.sh',
    'cnapi job start --from-job c0ff --status failed -- ./upgrade.sh',
    'cnapi job start --all --ticket rollout/web --quorum 80% -- ./upgrade.sh',
    "cnapi job start --at 22:00 'hostname=web-*' -- systemctl restart nginx",
  ]);
}

async function start(context: Context, [names]: readonly unknown[], options: StartOptions): Promise<number> {
  const { client, random } = context;
  if (options.at !== undefined) return startLater(context, names as string[], { ...options, at: options.at });
  if (!options.dryRun) requireCommand(context);
  const targets = await findTargets(context, names as string[], options);
  if (options.dryRun) return list(context, await readServers(context, targets));
  // A share of the servers is a share of those that the job has, so they are looked up once.
  const asked = options.maxFail?.endsWith('%') ? { servers: await readServers(context, targets) } : targets;
  const count = 'servers' in asked ? asked.servers.length : undefined;
  const job = await client.createPushJob(
    { ...targetFieldsOf(asked), ...(await buildJobBody(context, options, count)) },
    random.uuid(),
  );
  return followStarted(context, { job, detach: options.detach, capture: options.capture });
}

function list({ output }: Context, servers: readonly NamedServer[]): number {
  if (output.json) output.document(servers);
  else printServers(output, servers);
  return EXIT.ok;
}

/** Creates a schedule of one time. */
async function startLater(
  context: Context,
  names: readonly string[],
  options: StartOptions & { at: string },
): Promise<number> {
  if (options.detach) throw new UsageError('--at cannot be combined with --detach: it starts nothing now');
  await createSchedule(context, names, options);
  return EXIT.ok;
}

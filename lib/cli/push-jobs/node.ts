/** `cnapi node`: the states of servers in push jobs. */

import { Command, Option } from 'commander';
import { chunksOf } from '../../platform/chunks.ts';
import { NODE_AVAILABILITIES, type PushNodeState, pushNodeContracts } from '../../protocol/api/push/nodes.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findTargets, readServers } from '../lookup/targets.ts';
import { sortByName } from '../terminal/name-order.ts';
import type { Column } from '../terminal/table.ts';

/** Limits the uuids in the URL of one request. */
const SERVERS_A_REQUEST = 100;

const MORE = `
idle: the server can take part in a push job. in_job: it has voted yes, or runs the command. rehab: after a \
job that was aborted or that lost the server, cnapi asks the agent to forget the job, until the agent answers. down: no instance holds its agent.
`;

export function nodeCommand(runner: CommandRunner): Command {
  return new Command('node')
    .description('Shows which servers are free for push jobs, and which are in one.')
    .addCommand(statusCommand(runner));
}

function statusCommand(runner: CommandRunner): Command {
  const command = new Command('status')
    .description('Shows the states of servers in push jobs, and the job that each is in.')
    .argument(
      '[query|server...]',
      'name=pattern as with --where of cnapi servers; or uuids, beginnings of them, or hostnames',
    )
    .option('--group <server-group>', 'the servers of this server group (see cnapi group)')
    .addOption(new Option('--status <status>', 'only servers with this status').choices(NODE_AVAILABILITIES))
    .action(runner.action(status));
  return withExamples(withExplanation(command, MORE), [
    'cnapi node status',
    "cnapi node status web-1 'web-2'",
    'cnapi node status --status in_job',
    "cnapi node status 'traits.role=web' --json",
  ]);
}

interface StatusOptions {
  group?: string;
  status?: PushNodeState['status'];
}

async function status(
  context: Context,
  [names]: readonly unknown[],
  { group, status: wanted }: StatusOptions,
): Promise<void> {
  const { client, output } = context;
  const asked = names as string[];
  const which = group === undefined ? { all: asked.length === 0 } : { group };
  const servers = await readServers(context, await findTargets(context, asked, which));
  const states: PushNodeState[] = [];
  for (const chunk of chunksOf(servers, SERVERS_A_REQUEST)) {
    const server_uuid = chunk.map(({ uuid }) => uuid);
    states.push(...(await client.ask(pushNodeContracts.ListPushNodeStates, { server_uuid })));
  }
  const shown = wanted === undefined ? states : states.filter((state) => state.status === wanted);
  if (output.json) return output.document(shown);
  output.table(COLUMNS, sortByName(shown));
  if (shown.length === 0) output.note(`No server is ${wanted}`);
}

const COLUMNS: readonly Column<PushNodeState>[] = [
  { head: 'NODE NAME', of: ({ name, server_uuid }) => name || server_uuid, shrinks: true },
  { head: 'STATUS', of: ({ status }) => status },
  { head: 'JOB', of: ({ job }) => job, abbreviates: true },
];

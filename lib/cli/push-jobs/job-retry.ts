/** `cnapi job retry`: an earlier push job once more, where it did not succeed. */

import { Command } from 'commander';
import { NODE_STATUSES, type PushJob, type PushNode } from '../../protocol/api/push/job-schemas.ts';
import { pushJobContracts } from '../../protocol/api/push/jobs.ts';
import { SECRET_MASK } from '../../protocol/secret-params.ts';
import { type CommandRunner, collectValues, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { buildJobVariables, parseVariables, type Variables } from '../invocation/remote-program.ts';
import { findPushJob, readJobNodes } from '../lookup/find-push-job.ts';
import { hasNodeEnded } from '../output/node-ending.ts';
import { RefusedError, UsageError, WithheldError } from '../terminal/command-errors.ts';
import { followStarted } from './follow-job.ts';
import { nodeStatusOption, readJobFile } from './job-options.ts';
import { hasEnded } from './job-progress.ts';

interface Options {
  status?: string[];
  env?: string[];
  secretEnv?: string[];
  file?: string;
  capture?: boolean;
  detach?: boolean;
}

const MORE = `
A new push job runs the same command with the same options, on the nodes of the earlier one that have not succeeded: failed, \
crashed, timed_out, aborted, nacked, unavailable and was_ready. Its quorum is the same share of its nodes as before.

Values of secret variables, and a file, are not kept for this. Give them again with --secret-env and --file.
`;

/** @throws UsageError */
function repeatedStatus(text: string, others: string[] | undefined): string[] {
  if (NODE_STATUSES.some((status) => status === text)) return collectValues(text, others);
  throw new UsageError(`--status ${text} is not one of ${NODE_STATUSES.join(', ')}`);
}

export function retryCommand(runner: CommandRunner): Command {
  const command = new Command('retry')
    .description('Runs a push job again on the nodes where it did not succeed.')
    .argument('<job>', 'id, or the beginning of one')
    .addOption(nodeStatusOption('only nodes with this status; may be repeated').argParser(repeatedStatus))
    .option(
      '--env <name=value>',
      'set this variable for the command, or change it, at most 64 KiB in all; may be repeated',
      collectValues,
    )
    .option(
      '--secret-env <name>',
      'pass this variable of your own environment, or NAME=VALUE; only the agents see it. May be repeated',
      collectValues,
    )
    .option('--file <path>', 'the file for the command')
    .option('--capture', 'show what the command writes on each server, as it writes it')
    .option('-d, --detach', 'print the id of the new job and do not wait')
    .action(runner.action(retry));
  return withExamples(withExplanation(command, MORE), [
    'cnapi job retry c0ff',
    'cnapi job retry c0ff --status crashed',
  ]);
}

async function retry(context: Context, [text]: readonly unknown[], options: Options): Promise<number> {
  const { client, random } = context;
  const former = await client.ask(pushJobContracts.GetPushJob, { id: await findPushJob(context, String(text)) });
  const shortId = former.id.slice(0, 8);
  if (!hasEnded(former))
    throw new RefusedError(`Push job ${shortId} is ${former.status}; wait for its end or abort it`);
  const { command } = former;
  if (command === undefined) throw new WithheldError('The command and the options of a push job');
  const nodes = (await readJobNodes(context, former.id)).filter((node) => isAgain(node, options.status));
  if (nodes.length === 0) {
    if (options.status !== undefined) throw new UsageError('No node of that job matches');
    throw new RefusedError(`All nodes of push job ${shortId} have succeeded: there is nothing to retry`);
  }
  const file = await readJobFile(options.file);
  if (former.file_specified && file === undefined)
    throw new UsageError('The job had a file, which is not kept: give it again with --file');
  const job = await client.createPushJob(
    {
      command,
      servers: nodes.map(({ server_uuid }) => server_uuid),
      ...optionsOf(former, nodes.length),
      ...buildJobVariables(variablesAgain(former, parseVariables(options, context.env))),
      file,
      capture_output: options.capture ?? former.capture_output,
    },
    random.uuid(),
  );
  return followStarted(context, { job, detach: options.detach, capture: options.capture });
}

function isAgain(node: PushNode, wanted: readonly string[] | undefined): boolean {
  return wanted === undefined ? hasNodeEnded(node) && node.status !== 'succeeded' : wanted.includes(node.status);
}

function optionsOf(former: PushJob, nodeCount: number) {
  const { concurrency, start_rate, max_failures, run_timeout_ms, node_timeout_ms, voting_timeout_ms, user, dir } =
    former;
  const quorum = Math.max(1, Math.ceil((former.quorum / former.node_count) * nodeCount));
  const limits = { quorum, concurrency, start_rate, max_failures, run_timeout_ms, node_timeout_ms, voting_timeout_ms };
  return { ...limits, user, dir, ticket: former.ticket && wantedAgain(former.ticket) };
}

/** Another place in the same queue: that of the former job was given up at its end. */
function wantedAgain({ server_uuid, scope, id, expires_in, timeout_ms }: NonNullable<PushJob['ticket']>) {
  return { server_uuid, scope, id, expires_in, timeout_ms };
}

/** @throws UsageError when a secret was not given again */
function variablesAgain({ env = {} }: PushJob, given: Variables): Variables {
  const secrets = Object.keys(env).filter((name) => env[name] === SECRET_MASK);
  const missing = secrets.filter((name) => !Object.hasOwn(given.env, name));
  if (missing.length > 0)
    throw new UsageError(
      `The job had secret variables, which are not kept. Give again: ${missing.map((name) => `--secret-env ${name}`).join(' ')}`,
    );
  return { env: { ...env, ...given.env }, secrets: [...new Set([...secrets, ...given.secrets])] };
}

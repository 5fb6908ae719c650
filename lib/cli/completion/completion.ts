/**
 * `cnapi completion`: prints completion scripts for shells. `cnapi __complete`: the program that
 * these scripts call.
 */
import { Argument, Command } from 'commander';
import type { CnapiClient } from '../../client/client.ts';
import { serverGroups } from '../../protocol/api/documents/server-groups.ts';
import { pushJobContracts } from '../../protocol/api/push/jobs.ts';
import { pushScheduleContracts } from '../../protocol/api/push/schedules.ts';
import { workflowContracts } from '../../protocol/api/workflows.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import { type Context, createContext } from '../invocation/context.ts';
import { listDocuments } from '../lookup/find-document.ts';
import { type CompletionKind, complete, isPlainWord, startingWith } from './complete.ts';
import { completionScripts, SHELLS, type Shell } from './completion-scripts.ts';

/** Maximum time that a user waits after pressing Tab. */
const WITHIN_MS = 1000;
const MAX_WORDS = 200;
const MAX_SERVERS_ASKED = 30;

export function completionCommand(runner: CommandRunner): Command {
  const command = new Command('completion')
    .description(
      'Prints the script that lets a shell complete commands, options, and names and ids of servers, tasks, push jobs, schedules, workflow jobs, server groups, instances, tickets and tokens.',
    )
    .addArgument(new Argument('<shell>', 'which').choices([...SHELLS]))
    .action(
      runner.action(async ({ output }, [shell]) => {
        output.raw(completionScripts[shell as Shell]);
      }),
    );
  return withExamples(command, [
    'source <(cnapi completion bash)',
    'cnapi completion fish > ~/.config/fish/completions/cnapi.fish',
  ]);
}

export function completeCommand(runner: CommandRunner, program: Command): Command {
  return new Command('__complete').action(
    runner.action(
      async ({ output, rest = [], env, streams }) => {
        const completion = complete(program, rest);
        const typed = rest.at(-1) ?? '';
        // Names in the fleet may contain any character; only plain words are offered.
        const { words = [], wanted } = completion;
        const names = wanted === undefined ? [] : (await asked(rest, { env, streams }, wanted)).filter(isPlainWord);
        for (const word of startingWith([...words, ...names], typed).slice(0, MAX_WORDS)) output.line(word);
      },
      { rest: true },
    ),
  );
}

/** Returns an empty list when no instance answers in time: a completion reports no errors. */
async function asked(
  words: readonly string[],
  { env, streams }: Pick<Context, 'env' | 'streams'>,
  wanted: CompletionKind,
): Promise<string[]> {
  const context = createContext(placeIn(words), { env, streams, rest: undefined });
  try {
    const { client, clock } = context;
    const late = clock.sleep(WITHIN_MS).then(() => []);
    return await Promise.race([namesOf(client, wanted, words.at(-1) ?? ''), late]);
  } catch {
    return [];
  } finally {
    context.close();
  }
}

/** Returns the place of the instances if the command line itself names it. */
function placeIn(words: readonly string[]) {
  const after = (option: string) => {
    const at = words.indexOf(option);
    return at < 0 ? undefined : words[at + 1];
  };
  const [url, dns, dnsName] = [after('--url'), after('--dns'), after('--dns-name')];
  return { ...(url && { url: [url] }), ...(dns && { dns }), ...(dnsName && { dnsName }), tls: words.includes('--tls') };
}

async function namesOf(client: CnapiClient, wanted: CompletionKind, typed: string): Promise<string[]> {
  switch (wanted) {
    case 'server':
      return serverNames(client, typed);
    case 'task':
      return taskIds(client);
    case 'instance':
      return (await client.instances()).flatMap(({ uuid, url }) => [uuid, url.replace(/^https?:\/\//, '')]);
    case 'ticket':
      return (await client.queues()).flatMap(({ holder }) => (holder === null ? [] : [holder.uuid]));
    case 'token':
      return (await client.tokens({ ended: false })).map(({ name }) => name);
    case 'job':
      return (await client.ask(pushJobContracts.ListPushJobs, { limit: MAX_WORDS })).jobs.map(({ id }) => id);
    case 'schedule':
      return (await client.ask(pushScheduleContracts.ListPushSchedules, { limit: MAX_WORDS })).schedules.map(
        ({ id }) => id,
      );
    case 'workflow':
      return (await client.ask(workflowContracts.ListWorkflowJobs, { limit: MAX_WORDS })).map(({ uuid }) => uuid);
    case 'server-group':
      return (await listDocuments(client, serverGroups, {}, MAX_WORDS)).map(({ name }) => String(name));
    default:
      return wanted satisfies never;
  }
}

/** Offers hostnames, and uuids when the user has started to type a word. */
async function serverNames(client: CnapiClient, typed: string): Promise<string[]> {
  const names: string[] = [];
  for await (const { uuid, hostname } of client.allServers({ fields: 'uuid,hostname' })) {
    if (hostname !== undefined) names.push(hostname);
    if (hostname === undefined || typed !== '') names.push(uuid);
  }
  return names;
}

/** Offers recent tasks of the first servers only, to limit the number of requests. */
async function taskIds(client: CnapiClient): Promise<string[]> {
  const servers = await client.servers({ limit: MAX_SERVERS_ASKED, fields: 'uuid' });
  const each = await Promise.allSettled(servers.map(({ uuid }) => client.taskHistory(uuid, 10)));
  return each.flatMap((one) => (one.status === 'fulfilled' ? one.value.flatMap(({ id }) => id ?? []) : []));
}

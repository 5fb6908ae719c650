/**
 * `cnapi deployment`: besides the commands of any noun, binds roles to servers, commits what is
 * proposed, and says how far it is.
 */
import type { Command } from 'commander';
import { annealerContracts, NODEROLE_STATES, type Noderole } from '../../protocol/api/annealer.ts';
import { deployments } from '../../protocol/api/documents/annealer.ts';
import { documentCommand } from '../documents/document.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServers } from '../lookup/find.ts';
import { findDocument } from '../lookup/find-document.ts';
import { EXIT } from '../terminal/command-errors.ts';
import { parseDuration, shortDuration } from '../terminal/duration.ts';
import { readAllNoderoles } from './find-noderole.ts';

const NAMED = 'its name, its uuid, or the beginning of it';

const WAIT = `
With --wait it says how many noderoles are in each state, until all are active or those that are not are in error or blocked by an error.

Exit codes: 0 committed, and with --wait all are active; 1 some are not.
`;

export function deploymentCommand(runner: CommandRunner): Command {
  const command = documentCommand(runner, deployments);
  withExamples(command.command('bind'), ['cnapi deployment bind shop web web-1 web-2'])
    .description('Binds a role to servers, with the roles that it requires. Nothing runs before the commit.')
    .argument('<deployment>', NAMED)
    .argument('<role>', 'the name of the role')
    .argument('<server...>', 'uuids, beginnings of them, or hostnames')
    .action(runner.action(bind));
  withExamples(withExplanation(command.command('commit'), WAIT), [
    'cnapi deployment commit shop',
    'cnapi deployment commit shop --wait --timeout 10m',
  ])
    .description('Commits what is proposed in a deployment. Unchanged noderoles keep their state.')
    .argument('<deployment>', NAMED)
    .option('--wait', 'wait until its noderoles are active')
    .option('--timeout <duration>', 'with --wait, wait no longer than this')
    .action(runner.action(commit));
  withExamples(command.command('status'), ['cnapi deployment status shop'])
    .description('Says how many noderoles of a deployment are in each state, and which are in error.')
    .argument('<deployment>', NAMED)
    .action(runner.action(status));
  return command;
}

async function uuidOf({ client }: Context, text: unknown): Promise<string> {
  return (await findDocument(client, deployments, String(text))).uuid;
}

async function bind(context: Context, [deployment, role, names]: readonly unknown[]): Promise<void> {
  const { client, output } = context;
  const uuid = await uuidOf(context, deployment);
  const servers = (await findServers(client, names as string[])).map((server) => server.uuid);
  const bound = await client.ask(annealerContracts.BindRole, { uuid, role: String(role), servers });
  if (output.json) return output.document(bound);
  for (const noderole of bound.noderoles) output.line(noderole.uuid);
  const elsewhere = bound.noderoles.filter((noderole) => noderole.deployment !== uuid);
  for (const noderole of elsewhere)
    output.note(`${role} on server ${noderole.server_uuid} is bound in deployment ${noderole.deployment} already`);
  output.note(`${bound.created} new noderoles; to run them: cnapi deployment commit ${String(deployment)}`);
}

interface CommitOptions {
  wait?: boolean;
  timeout?: string;
}

async function commit(
  context: Context,
  [deployment]: readonly unknown[],
  { wait = false, timeout }: CommitOptions,
): Promise<number> {
  const { client, output } = context;
  const timeoutMs = timeout === undefined ? undefined : parseDuration(timeout, '--timeout');
  const uuid = await uuidOf(context, deployment);
  const committed = await client.ask(annealerContracts.CommitDeployment, { uuid });
  if (output.json && !wait) output.document(committed);
  else output.note(`${committed.committed} noderoles committed, ${committed.due} of them due`);
  return wait ? waitUntilSettled(context, uuid, timeoutMs) : EXIT.ok;
}

/** How often the noderoles are read while a command waits for them. */
const POLL_MS = 1_000;
/** Without a change for this long, the command says why nothing happens. */
const EXPLAIN_AFTER_MS = 10_000;
const MAX_EXPLAINED = 3;

async function waitUntilSettled(context: Context, uuid: string, timeoutMs: number | undefined): Promise<number> {
  const { client, output, clock } = context;
  const began = clock.now();
  let said = '';
  let changedAt = began;
  for (;;) {
    const found = await readAllNoderoles(client, { deployment: uuid });
    const now = countsOf(found);
    if (now !== said) {
      output.note(now);
      changedAt = clock.now();
    } else if (clock.now() - changedAt >= EXPLAIN_AFTER_MS) {
      await explainUnsettled(context, found);
      changedAt = Number.POSITIVE_INFINITY;
    }
    said = now;
    if (isSettled(found)) return finish(context, found);
    if (timeoutMs !== undefined && clock.now() - began >= timeoutMs) {
      output.complain(`not settled within ${shortDuration(timeoutMs)}; the annealer goes on`);
      await explainUnsettled(context, found);
      return EXIT.failed;
    }
    await clock.sleep(POLL_MS);
  }
}

async function explainUnsettled({ client, output }: Context, all: readonly Noderole[]): Promise<void> {
  const unsettled = all.filter(({ state }) => state !== 'active' && state !== 'error').slice(0, MAX_EXPLAINED);
  for (const { uuid } of unsettled) {
    const { role, server_uuid, explanation } = await client.ask(annealerContracts.GetNoderole, { uuid });
    output.note(`${role} on server ${server_uuid}: ${explanation}`);
  }
}

/** Nothing goes on by itself: what is not active is in error, or blocked by one that is. */
const isSettled = (all: readonly Noderole[]): boolean =>
  all.every(
    ({ state, blocked_by }) =>
      state === 'active' ||
      state === 'error' ||
      state === 'proposed' ||
      (state === 'blocked' && blocked_by !== undefined),
  );

function finish({ output }: Context, all: readonly Noderole[]): number {
  if (output.json) output.document(all);
  for (const noderole of errorsOf(all)) output.complain(lineOf(noderole));
  return all.every(({ state }) => state === 'active') ? EXIT.ok : EXIT.failed;
}

/** `3 todo, 2 active`. */
function countsOf(all: readonly Noderole[]): string {
  const counts = Map.groupBy(all, ({ state }) => state);
  const parts = NODEROLE_STATES.flatMap((state) => {
    const found = counts.get(state);
    return found === undefined ? [] : [`${found.length} ${state}`];
  });
  return parts.length === 0 ? 'no noderoles' : parts.join(', ');
}

async function status(context: Context, [deployment]: readonly unknown[]): Promise<void> {
  const { client, output } = context;
  const uuid = await uuidOf(context, deployment);
  const found = await readAllNoderoles(client, { deployment: uuid });
  if (output.json) {
    const countOf = (state: string) => found.filter((noderole) => noderole.state === state).length;
    const counts = NODEROLE_STATES.map((state) => [state, countOf(state)]);
    return output.document({ ...Object.fromEntries(counts), errors: errorsOf(found) });
  }
  output.line(countsOf(found));
  for (const noderole of errorsOf(found)) output.line(lineOf(noderole));
}

const errorsOf = (all: readonly Noderole[]): Noderole[] => all.filter(({ state }) => state === 'error');

const lineOf = ({ role, server_uuid, uuid, error }: Noderole): string =>
  `${role} on server ${server_uuid}: ${error?.code}: ${error?.message} (noderole ${uuid})`;

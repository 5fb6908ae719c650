/** `cnapi token`: manages tokens for callers and agents. */
import { Command, Option } from 'commander';
import { messageOf } from '../../platform/errors.ts';
import { type Role, TOKEN_ROLES } from '../../protocol/api/contract/roles.ts';
import { isUuid } from '../../protocol/api/contract/rules.ts';
import type { CreatedToken, Token } from '../../protocol/api/tokens.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context, GlobalOptions } from '../invocation/context.ts';
import { forEach } from '../invocation/each.ts';
import { localConfigFile } from '../invocation/local-config.ts';
import { findServerUuid, isPrefix, uniqueMatch } from '../lookup/find.ts';
import { RefusedError, UsageError } from '../terminal/command-errors.ts';
import { parseDuration, shortTime } from '../terminal/duration.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { withPrivateFile } from '../terminal/private-file.ts';
import type { Column } from '../terminal/table.ts';

export function tokenCommand(runner: CommandRunner): Command {
  return new Command('token')
    .description('Creates, lists and revokes tokens, for admins; prints the HTTP header that carries your own token.')
    .addCommand(createCommand(runner))
    .addCommand(listCommand(runner))
    .addCommand(revokeCommand(runner))
    .addCommand(headerCommand(runner));
}

function createCommand(runner: CommandRunner): Command {
  const command = new Command('create')
    .description('Creates a token and prints it. It is not shown again.')
    .argument('<name>', 'who or what it is for; audit records show it')
    .addOption(new Option('--role <role>', 'what it permits').choices(TOKEN_ROLES).makeOptionMandatory())
    .option('--expires <duration>', 'such as 90d (default: never)')
    .option('--server <server>', 'for the agent of this server only: uuid or hostname')
    .option(
      '--config <file>',
      "an instance's configuration: write the token straight into its database, without authentication; for the first token",
    )
    .option('--local', 'the same with the configuration of your npm start, which must be running on this machine')
    .option('--file <file>', 'write the token to this new file, mode 0600, instead of printing it')
    .action(runner.action(create));
  return withExamples(command, [
    'cnapi token create admin --role admin --config a.json --file admin.token',
    'cnapi token create admin --role admin --local --file admin.token',
    'cnapi token create deploy --role operator --expires 90d --file deploy.token',
    'cnapi token create web-1 --role agent --server web-1',
  ]);
}

function listCommand(runner: CommandRunner): Command {
  const command = new Command('list')
    .description('Lists tokens: names, roles and last use. It never shows the tokens themselves.')
    .option('-a, --all', 'also revoked and expired tokens')
    .action(runner.action(list));
  return withExamples(command, ['cnapi token list', 'cnapi token list --all --json']);
}

function revokeCommand(runner: CommandRunner): Command {
  const command = new Command('revoke')
    .description('Revokes tokens: every instance refuses them within a second.')
    .argument('<token...>', 'uuids, the beginning of one, or names of tokens that are not revoked')
    .action(runner.action(revoke));
  return withExamples(command, ['cnapi token revoke deploy']);
}

function headerCommand(runner: CommandRunner): Command {
  const command = new Command('header')
    .description('Prints the HTTP header with the token that cnapi itself sends, for curl -H @-. Contacts no instance.')
    .action(runner.action(header));
  return withExamples(command, ["cnapi token header | curl -s -H @- 'http://127.0.0.1:8080/servers?limit=3'"]);
}

interface CreateOptions {
  role: Role;
  expires?: string;
  server?: string;
  config?: string;
  local?: boolean;
  file?: string;
}

async function create(context: Context, [name]: readonly unknown[], options: CreateOptions): Promise<void> {
  const { role, expires, server, file } = options;
  const source = sourceOf(context, options);
  const expires_in = expires === undefined ? undefined : Math.ceil(parseDuration(expires, '--expires') / 1000);
  const server_uuid = server === undefined ? undefined : await findServerUuid(context.client, server);
  // The error then names the token.
  context.output.onUnwritable = () => undefined;
  await withPrivateFile(file, async (save) => {
    const asked = { name: String(name), role, expires_in, server_uuid };
    const made =
      source === undefined ? await context.client.createToken(asked) : await createDirectly(context, source, asked);
    await save(`${made.token}\n`).catch((cause: unknown) => {
      throw secretLost(made, `${file} cannot be written: ${messageOf(cause)}`);
    });
    show(context.output, made, file);
    if (file === undefined && (await context.output.hasLost())) throw secretLost(made, 'it was not written');
  });
}

function secretLost({ uuid, name }: CreatedToken, reason: string): RefusedError {
  return new RefusedError(
    `the secret of token ${uuid} (${name}) is lost: ${reason}; revoke it: cnapi token revoke ${uuid}`,
  );
}

/** A configuration whose database the token is written to, without asking an instance. */
interface ConfigSource {
  file: string;
  /** Overrides the file, as for an instance. */
  env: NodeJS.ProcessEnv;
}

/**
 * If --local is given, no environment variable overrides the file. `npm start` ignores the
 * variables of the database, so they could name another database than that of its instances.
 * @throws UsageError
 */
function sourceOf(
  { env }: Context,
  { config, local, ...options }: CreateOptions & GlobalOptions,
): ConfigSource | undefined {
  if (!local) return config === undefined ? undefined : { file: config, env };
  if (config !== undefined) throw new UsageError('--local cannot be combined with --config');
  const file = localConfigFile(options, env);
  if (file === undefined) throw new UsageError('--local: no npm start of yours runs here; name a file with --config');
  return { file, env: {} };
}

function show(output: Context['output'], { token, ...made }: CreatedToken, file: string | undefined): void {
  const until = made.expires_at ? `until ${shortTime(made.expires_at)}` : 'until it is revoked';
  output.note(escapeControls(`token ${made.uuid} (${made.name}, ${made.role}) is valid ${until}`));
  if (output.json) return output.document(file === undefined ? { ...made, token } : { ...made, file });
  if (file === undefined) output.line(token);
  else output.line(file);
}

interface Asked {
  name: string;
  role: Role;
  expires_in: number | undefined;
  server_uuid: string | undefined;
}

/** Imports only when needed, because it loads half of an instance's code. */
async function createDirectly(
  { output }: Context,
  source: ConfigSource,
  { name, role, expires_in, server_uuid }: Asked,
): Promise<CreatedToken> {
  if (server_uuid !== undefined && role !== 'agent') throw new UsageError('--server requires --role agent');
  const { createTokenDirectly } = await import('../../control/access/direct-token.ts');
  const request = { name, role, expiresInSeconds: expires_in, serverUuid: server_uuid };
  const { made, database } = await createTokenDirectly(source, request);
  const override = source.env.CNAPI_DATABASE_URL === undefined ? '' : ' (from CNAPI_DATABASE_URL)';
  output.note(escapeControls(`configuration ${source.file}; database ${database}${override}`));
  return { ...made };
}

const TOKEN: readonly Column<Token>[] = [
  { head: 'TOKEN', of: ({ uuid }) => uuid },
  { head: 'NAME', of: ({ name }) => name, shrinks: true },
  { head: 'ROLE', of: ({ role }) => role },
  { head: 'SERVER', of: ({ server_uuid }) => server_uuid },
  { head: 'CREATED', of: ({ created_at }) => shortTime(created_at) },
  { head: 'BY', of: ({ created_by }) => created_by, shrinks: true },
  { head: 'EXPIRES', of: ({ expires_at }) => shortTime(expires_at) },
  { head: 'LAST USED', of: ({ last_used_at }) => shortTime(last_used_at) },
  { head: 'REVOKED', of: ({ revoked_at }) => shortTime(revoked_at) },
];

async function list({ client, output }: Context, _: unknown, { all = false }: { all?: boolean }): Promise<void> {
  const tokens = await Array.fromAsync(client.allTokens(all ? {} : { ended: false }));
  if (output.json) return output.document(tokens);
  output.table(all ? TOKEN : TOKEN.slice(0, -1), tokens);
  if (tokens.length === 0) output.note('There is no token');
}

async function revoke({ client, output }: Context, [given]: readonly unknown[]): Promise<number> {
  // Resolves all names before it revokes the first token, so that an unknown name changes nothing.
  const uuids = await Array.fromAsync(given as string[], (name) =>
    isUuid(name) ? name.toLowerCase() : named(client, name),
  );
  const { results: revoked, exitCode } = await forEach(output, uuids, async (uuid) => {
    await client.revokeToken(uuid);
    if (!output.json) output.line(`${uuid} is revoked`);
    return uuid;
  });
  if (output.json) output.document({ revoked });
  return exitCode;
}

async function header({ client, output }: Context): Promise<void> {
  const token = await client.http.token();
  if (token === undefined)
    throw new UsageError(
      'There is no token: set CNAPI_TOKEN_FILE or CNAPI_TOKEN, or keep one in ~/.config/cnapi/token',
    );
  const line = `Authorization: Bearer ${token}`;
  if (output.json) output.document({ header: line });
  else output.line(line);
}

/**
 * The uuid of the token with this name. Only one token that is not revoked has the name; it may
 * have expired.
 */
async function named(client: Context['client'], name: string): Promise<string> {
  const found = (await client.tokens({ name })).find(({ revoked_at }) => !revoked_at);
  if (found !== undefined) return found.uuid;
  if (!isPrefix(name)) throw new UsageError(`There is no token ${escapeControls(name)}; cnapi token list shows them`);
  return uniqueMatch('token', name, await Array.fromAsync(client.allTokens(), ({ uuid }) => uuid));
}

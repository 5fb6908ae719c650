/**
 * Creates tokens directly in the database that a configuration names: the first one, without which
 * nobody can authenticate; another one when all admins' tokens were lost; and those of `npm start`.
 * Anybody who can read the configuration could do anything in that database anyway. Each creation
 * is in the audit. Called by `cnapi token create` with --config or --local, and by tools/start.
 */

import { silentLogger } from '../../platform/log.ts';
import { databaseText } from '../../platform/postgres/database-url.ts';
import { migrate } from '../../platform/postgres/migrations.ts';
import { PostgresDatabase } from '../../platform/postgres/pool.ts';
import { systemRandom as random } from '../../platform/random.ts';
import { systemClock as clock } from '../../platform/time/clock.ts';
import type { CreatedToken } from '../../protocol/api/tokens.ts';
import { AuditLog, type AuditSubject } from '../audit/audit-log.ts';
import { type Config, loadConfig } from '../config.ts';
import { migrations } from '../subsystem-list.ts';
import { toCreatedToken } from './routes/token-view.ts';
import { matchesHash, parseToken } from './token.ts';
import { readTokens } from './token-store.ts';
import { type IssuedToken, type TokenRequest, Tokens } from './tokens.ts';

type DirectRequest = Omit<TokenRequest, 'createdBy'>;

const ACTOR = 'configuration';
const NO_INSTANCE = '00000000-0000-0000-0000-000000000000';

/**
 * Reads the configuration as an instance does: variables of `env` override the file. Returns the
 * token, and the name and the address of the database that has it, for messages.
 * @throws ConfigError, DatabaseUnavailableError, MigrationError, TokenNameTakenError; the
 * database's error
 */
export async function createTokenDirectly(
  { file, env }: { file: string; env: Readonly<Record<string, string | undefined>> },
  request: DirectRequest,
): Promise<{ made: CreatedToken; database: string }> {
  const config = loadConfig(file, env);
  const text = databaseText(config.databaseUrl);
  await using database = await openMigrated(config);
  return { made: toCreatedToken(await createIn(database, config, request)), database: text };
}

/**
 * Returns the text of each wanted token: `text` if that token is still valid, else the text of a
 * new token. A new token is named `request.name` with an id of its own, so an earlier one of that
 * name does not matter. @throws like `createTokenDirectly`
 */
export async function keepTokensDirectly(
  config: Config,
  wanted: readonly { text: string | undefined; request: DirectRequest }[],
): Promise<string[]> {
  await using database = await openMigrated(config);
  const texts: string[] = [];
  for (const { text, request } of wanted) {
    if (text !== undefined && (await isGood(database, text, request))) texts.push(text);
    else texts.push((await createIn(database, config, { ...request, name: `${request.name} ${shortId()}` })).token);
  }
  return texts;
}

async function openMigrated({ databaseUrl: url, databasePooler: pooler }: Config): Promise<PostgresDatabase> {
  const options = { url, pooler, applicationName: 'cnapi token', maxConnections: 2, clock, log: silentLogger };
  const database = new PostgresDatabase(options);
  try {
    await migrate(database, migrations, { log: silentLogger });
  } catch (error) {
    await database.stop();
    throw error;
  }
  return database;
}

async function isGood(database: PostgresDatabase, text: string, { role }: DirectRequest): Promise<boolean> {
  const token = parseToken(text);
  if (token === undefined) return false;
  const known = (await readTokens(database, [token.uuid])).get(token.uuid);
  return known !== undefined && !known.isOver && known.role === role && matchesHash(token.secret, known.secretHash);
}

async function createIn(database: PostgresDatabase, config: Config, request: DirectRequest): Promise<IssuedToken> {
  const cnapiUuid = config.cnapiUuid ?? NO_INSTANCE;
  const audit = new AuditLog({ database, cnapiUuid, clock, random, log: silentLogger });
  const subject: AuditSubject = {
    key: audit.newKey(),
    actor: ACTOR,
    roles: ['admin'],
    tokenUuid: undefined,
    action: 'CreateToken',
    method: 'POST',
    path: '/tokens',
    serverUuid: request.serverUuid,
    object: undefined,
    requestId: random.uuid(),
    source: 'local',
  };
  try {
    const record = audit.part(subject);
    const made = await new Tokens({ database, random }).create({ ...request, createdBy: ACTOR, record });
    audit.end(subject, { status: 201, code: undefined, object: made.uuid });
    return made;
  } catch (error) {
    const { statusCode = 500, code = 'InternalError' } = error as { statusCode?: number; code?: string };
    audit.refuse(subject, { status: statusCode, code, object: undefined }, { mayHaveBegun: true });
    throw error;
  } finally {
    await audit.stop();
  }
}

function shortId(): string {
  return random.uuid().slice(0, 8);
}

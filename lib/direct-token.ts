/**
 * Makes a token straight in the database that a configuration names: the first one, before which nobody can sign in, or one
 * more when all admins' were lost. Whoever can read the configuration could do anything there anyway. It is in the audit like
 * any other. Called by `cnapi token create --config FILE`.
 */
import type { Token } from './access/token.ts';
import { type TokenRequest, Tokens } from './access/tokens.ts';
import { AuditLog, type AuditSubject } from './audit/audit-log.ts';
import { loadConfig } from './config.ts';
import { migrations } from './core.ts';
import { silentLogger } from './log.ts';
import { migrate } from './moray/migrations.ts';
import { PostgresDatabase } from './moray/pool.ts';
import { systemClock as clock } from './ports/clock.ts';
import { systemRandom as random } from './ports/random.ts';

export type { Role } from './access/token.ts';

const ACTOR = 'configuration';
const NO_INSTANCE = '00000000-0000-0000-0000-000000000000';

/** @throws ConfigError, DatabaseUnavailableError, MigrationError, TokenNameTakenError; the database's error */
export async function createTokenDirectly(
  configFile: string,
  request: Omit<TokenRequest, 'createdBy'>,
): Promise<Token & { token: string }> {
  const config = loadConfig(configFile, process.env);
  const { databaseUrl: url, databasePooler: pooler } = config;
  const options = { url, pooler, applicationName: 'cnapi token', maxConnections: 2, clock, log: silentLogger };
  await using database = new PostgresDatabase(options);
  await migrate(database, migrations, { log: silentLogger });
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
    await audit.begin(subject);
    const made = await new Tokens({ database, random }).create({ ...request, createdBy: ACTOR });
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

/** What access contributes to an instance. */

import type { Database } from '../../platform/postgres/database.ts';
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import type { Random } from '../../platform/random.ts';
import { checkAccess } from '../doctor/access.ts';
import { counter } from '../metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import type { Authenticator } from './authenticator.ts';
import type { NewServerLimiter } from './new-server-limiter.ts';
import { tokenRoutes } from './routes/token-routes.ts';
import type { TokenAuthenticator } from './token-authenticator.ts';
import { deleteEndedTokens } from './token-store.ts';
import { Tokens } from './tokens.ts';

/** Counted from the end of the token. */
const KEEP_TOKENS_DAYS = 400;
const DELETE_BATCH = 5_000;

interface AccessParts {
  authenticator: Authenticator;
  tokenAuthenticator: TokenAuthenticator;
  newServers: NewServerLimiter;
  database: Database;
  random: Random;
  /**
   * Connections for reading tokens only, so no caller of this instance can delay the end of a
   * token. Stopped here.
   */
  tokenDatabase: Database;
  /** Runs the statements about tokens that are large or not urgent. This subsystem stops it. */
  tokenBackgroundDatabase: Database;
}

export const accessSubsystem: SubsystemDefinition<AccessParts> = {
  migrations: readMigrations('access', import.meta.dirname),
  checks: { access: checkAccess },
  open({ authenticator, tokenAuthenticator, newServers, database, random, ...connections }): Subsystem {
    const { stats } = authenticator;
    const { tokenDatabase, tokenBackgroundDatabase } = connections;
    return {
      name: 'access',
      routes: tokenRoutes({ tokens: new Tokens({ database, random }) }),
      start: () => tokenAuthenticator.start(),
      async stop() {
        await tokenAuthenticator.stop();
        await Promise.all([tokenDatabase.stop(), tokenBackgroundDatabase.stop()]);
      },
      metrics: [
        counter(
          'access_authentications_failed_total',
          'Requests with an invalid token or signature',
          () => stats.authenticationsFailed,
        ),
        counter('access_requests_limited_total', 'Requests answered with 429', () => stats.requestsLimited),
        counter(
          'access_connections_limited_total',
          'Connections beyond connectionsPerSource',
          () => stats.connectionsLimited,
        ),
        counter('access_links_refused_total', 'Agents refused because of their token', () => stats.linksRefused),
        counter(
          'access_new_servers_refused_total',
          'New servers refused because their caller had created more than newServersPerHour',
          () => newServers.refused,
        ),
      ],
      chores: [{ name: 'ended tokens', batch: () => deleteEndedTokens(database, KEEP_TOKENS_DAYS, DELETE_BATCH) }],
    };
  },
};

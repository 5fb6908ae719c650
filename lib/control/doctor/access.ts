/** Checks whether an admin has a valid token, and whether tokens are sent unencrypted. */

import { isLoopback } from '../../platform/network/networks.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import { type CheckInput, type Finding, findings } from './finding.ts';

export async function checkAccess({ database, config }: CheckInput): Promise<Finding[]> {
  const part = findings('access');
  if (config.access === 'open') return [part.ok(`open, and only this machine can reach ${config.host}`)];
  const admins = await countAdmins(database).catch(() => undefined);
  if (admins === undefined)
    return [part.warn('tokens; how many admins there are cannot be read', 'fix the database first')];
  const isOverheard = config.tlsCertFile === undefined && !isLoopback(config.host);
  return [
    admins > 0
      ? part.ok(`tokens, ${admins} of them good for an admin`)
      : part.fail(
          'tokens, and no admin has one',
          'cnapi token create admin --role admin --config FILE --file ~/.config/cnapi/token',
        ),
    ...(isOverheard ? [part.warn('tokens cross the network unencrypted', 'set tlsCertFile and tlsKeyFile')] : []),
  ];
}

async function countAdmins(database: Queryable): Promise<number> {
  const { rows: tables } = await database.query<{ there: boolean }>(
    "select to_regclass('cnapi_tokens') is not null as there",
  );
  if (!tables[0]?.there) return 0;
  const { rows } = await database.query<{ count: number }>(
    `select count(*)::int as count from cnapi_tokens
     where role = 'admin' and revoked_at is null and (expires_at is null or expires_at > cnapi_now())`,
  );
  return rows[0]?.count ?? 0;
}

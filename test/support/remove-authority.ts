/** The roster's part of a removal. The function that removes a server calls it. */
import type { Queryable } from '../../lib/platform/postgres/database.ts';

export async function removeAuthority(
  database: Queryable,
  cnapiUuid: string,
  serverUuid: string,
): Promise<{ previousRun: string | null; epoch: number } | undefined> {
  const { rows } = await database.query<{ previousRun: string | null; epoch: number }>(
    'select previous_run as "previousRun", kept_epoch as "epoch" from cnapi_remove_authority($1::uuid, $2::uuid)',
    [cnapiUuid, serverUuid],
  );
  return rows[0];
}

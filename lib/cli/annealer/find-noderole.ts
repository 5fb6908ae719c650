/** Noderoles as users name them: by uuid, or as ROLE@SERVER. */
import type { CnapiClient } from '../../client/client.ts';
import { pages } from '../../client/pages.ts';
import { annealerContracts, type Noderole, type NoderoleState } from '../../protocol/api/annealer.ts';
import { isUuid } from '../../protocol/api/contract/rules.ts';
import { findServer } from '../lookup/find.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { escapeControls } from '../terminal/escape-controls.ts';

interface Wanted {
  deployment?: string | undefined;
  server_uuid?: string | undefined;
  role?: string | undefined;
  state?: NoderoleState | undefined;
}

/** Lists noderoles in the order in which they run, at most `wanted`. */
export function readAllNoderoles(
  client: CnapiClient,
  filter: Wanted,
  wanted = Number.POSITIVE_INFINITY,
): Promise<Noderole[]> {
  const found = pages(async (page) => {
    const { noderoles, next } = await client.ask(annealerContracts.ListNoderoles, { ...filter, ...page });
    return { items: noderoles, next };
  }, wanted);
  return Array.fromAsync(found);
}

/** The uuid of the noderole. @throws UsageError when there is none */
export async function findNoderole(client: CnapiClient, text: string): Promise<string> {
  if (isUuid(text)) return text.toLowerCase();
  const [, role, server] = /^([^@]+)@(.+)$/.exec(text) ?? [];
  if (role === undefined || server === undefined)
    throw new UsageError(`${escapeControls(text)} is neither a uuid nor ROLE@SERVER; cnapi noderole list shows them`);
  const { uuid: server_uuid } = await findServer(client, server);
  const [found] = await readAllNoderoles(client, { role, server_uuid }, 1);
  if (found === undefined) throw new UsageError(`There is no noderole ${escapeControls(text)}`);
  return found.uuid;
}

/** The documents of the bucket store: page by page, or one by its name. */
import type { CnapiClient } from '../../client/client.ts';
import type { DocumentNoun } from '../../protocol/api/documents.ts';
import { isUuid, MAX_LIST } from '../../protocol/api/rules.ts';
import type { JsonObject } from '../../protocol/bounded-json.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { UsageError } from '../terminal/usage-error.ts';

type Client = Pick<CnapiClient, 'documents'>;

/** At most so many, in order of uuid. */
export async function listDocuments(
  client: Client,
  noun: DocumentNoun,
  filter: JsonObject,
  wanted = Number.POSITIVE_INFINITY,
): Promise<JsonObject[]> {
  const found: JsonObject[] = [];
  for (let after: unknown; ; ) {
    const limit = Math.min(MAX_LIST, wanted - found.length);
    const page = (await client.documents(noun.contracts.list, { ...filter, limit, after })) ?? {};
    found.push(...(page[noun.plural] as JsonObject[]));
    after = page.next;
    if (after === undefined || found.length >= wanted) return found;
  }
}

/**
 * The document with this name, or uuid. `within`: the values of other fields. `what`: the
 * noun in the words of a person.
 * @throws UsageError when there is none
 */
export async function findDocument<Found extends { uuid: string }>(
  client: Client,
  noun: DocumentNoun,
  name: string,
  { within = {}, what = inWords(noun.name) }: { within?: JsonObject; what?: string } = {},
): Promise<Found> {
  if (isUuid(name)) return (await client.documents(noun.contracts.get, { uuid: name })) as Found;
  // A name that ends in * would be the beginning of one.
  const [found] = name.endsWith('*') ? [] : await listDocuments(client, noun, { ...within, name }, 1);
  if (found === undefined) throw new UsageError(`There is no ${what} ${escapeControls(name)}`);
  return found as unknown as Found;
}

/** `server group` of `server_group`. */
export const inWords = (name: string): string => name.replaceAll('_', ' ');

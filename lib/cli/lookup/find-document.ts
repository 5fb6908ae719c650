/** The documents of the bucket store: page by page, or one by its name. */
import type { CnapiClient } from '../../client/client.ts';
import { pages } from '../../client/pages.ts';
import { isUuid } from '../../protocol/api/contract/rules.ts';
import type { DocumentNoun } from '../../protocol/api/documents/document-noun.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { isPrefix } from './find.ts';

type DocumentsClient = Pick<CnapiClient, 'documents'>;

/** Lists the documents that match, at most `wanted`, in order of uuid. */
export function listDocuments(
  client: DocumentsClient,
  noun: DocumentNoun,
  filter: JsonObject,
  wanted = Number.POSITIVE_INFINITY,
): Promise<JsonObject[]> {
  const found = pages(async (page) => {
    const answer = await client.documents(noun.contracts.list, { ...filter, ...page });
    return { items: answer[noun.plural] as JsonObject[], next: answer.next as string | undefined };
  }, wanted);
  return Array.fromAsync(found);
}

/**
 * The document with this name, this uuid, or a uuid that begins so. `within`: the values of other
 * fields. `what`: the noun in the words of a person.
 * @throws UsageError when there is none, or more than one
 */
export async function findDocument<Found extends { uuid: string }>(
  client: DocumentsClient,
  noun: DocumentNoun,
  text: string,
  { within = {}, what = inWords(noun.name) }: { within?: JsonObject; what?: string } = {},
): Promise<Found> {
  if (isUuid(text)) return (await client.documents(noun.contracts.get, { uuid: text })) as Found;
  const named = await namedSo(client, noun, text, within);
  const matches = named.length > 0 || !isPrefix(text) ? named : await beginningSo(client, noun, text, within);
  const [document, ...others] = matches;
  if (document === undefined) throw new UsageError(`There is no ${what} ${escapeControls(text)}`);
  if (others.length === 0) return document as unknown as Found;
  const uuids = matches.slice(0, 5).map(({ uuid }) => String(uuid));
  throw new UsageError(
    `There are several ${inWords(noun.plural)} ${escapeControls(text)}; give one of the uuids ${uuids.join(', ')}`,
  );
}

const MANY = 5;

async function namedSo(
  client: DocumentsClient,
  noun: DocumentNoun,
  name: string,
  within: JsonObject,
): Promise<JsonObject[]> {
  // The API takes a name that ends in * for the beginning of a name.
  if (!('name' in noun.indexes) || name.endsWith('*')) return [];
  return listDocuments(client, noun, { ...within, name }, MANY);
}

async function beginningSo(
  client: DocumentsClient,
  noun: DocumentNoun,
  text: string,
  within: JsonObject,
): Promise<JsonObject[]> {
  const all = await listDocuments(client, noun, within);
  return all.filter(({ uuid }) => String(uuid).startsWith(text.toLowerCase()));
}

/** Turns `server_group` into `server group`. */
export const inWords = (name: string): string => name.replaceAll('_', ' ');

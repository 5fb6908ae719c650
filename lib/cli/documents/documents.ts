/**
 * What commands do with documents of the bucket store: they read them page by page, find one by its
 * name, create, delete and print them. Used by the commands of each noun (document.ts) and of
 * `cnapi org`.
 */
import type { CnapiClient } from '../../client/client.ts';
import type { DocumentNoun } from '../../protocol/api/documents.ts';
import { isUuid, MAX_LIST } from '../../protocol/api/rules.ts';
import type { JsonObject } from '../../protocol/bounded-json.ts';
import type { Context } from '../invocation/context.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import type { Column } from '../terminal/table.ts';
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

/** Creates a document and prints its uuid, or with --json all of it. */
export async function createDocument(
  { client, output, random }: Context,
  noun: DocumentNoun,
  fields: JsonObject,
): Promise<void> {
  const made = await client.documents(noun.contracts.create, { uuid: random.uuid(), ...fields });
  if (output.json) output.document(made);
  else output.line(String(made?.uuid));
}

export async function deleteDocument(
  { client }: Context,
  noun: DocumentNoun,
  { uuid }: { uuid: string },
): Promise<void> {
  await client.documents(noun.contracts.delete, { uuid });
}

/** Prints documents that were read. `plural`: in the words of a person. */
export function printDocuments(
  { output }: Context,
  found: readonly JsonObject[],
  { plural, columns }: { plural: string; columns: readonly Column<JsonObject>[] },
): void {
  if (output.json) return output.document(found);
  output.table(columns, found);
  if (found.length === 0) output.note(`There are no ${plural}`);
}

/** A column with the text of a field, or with its JSON. */
export const fieldColumn = (head: string, field: string): Column<JsonObject> => ({
  head,
  of: (row) => textOf(row[field]),
  shrinks: true,
});

/** `server group` of `server_group`. */
export const inWords = (name: string): string => name.replaceAll('_', ' ');

/** A uuid is never shortened. */
export const UUID_COLUMN: Column<JsonObject> = { head: 'UUID', of: ({ uuid }) => textOf(uuid) };

const textOf = (value: unknown): string | undefined =>
  value === undefined ? undefined : typeof value === 'object' ? JSON.stringify(value) : String(value);

/**
 * What commands do with documents of the bucket store: they create, delete and print them. Used by
 * the commands of each noun (document.ts) and of `cnapi org`.
 */
import type { DocumentNoun } from '../../protocol/api/documents/document-noun.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import type { Context } from '../invocation/context.ts';
import { inWords } from '../lookup/find-document.ts';
import type { Column } from '../terminal/table.ts';

/** Creates a document and prints its uuid, or with --json all of it. */
export async function createDocument(
  { client, output, random }: Context,
  noun: DocumentNoun,
  fields: JsonObject,
): Promise<void> {
  const made = await client.documents(noun.contracts.create, { uuid: random.uuid(), ...fields });
  if (output.json) output.document(made);
  else output.line(String(made.uuid));
}

/** Deletes a document and prints its uuid. */
export async function deleteDocument(
  { client, output }: Context,
  noun: DocumentNoun,
  { uuid }: { uuid: string },
): Promise<void> {
  await client.delete(noun.contracts.delete, { uuid });
  output.deleted(inWords(noun.name), [uuid]);
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

/** A uuid is never shortened. */
export const UUID_COLUMN: Column<JsonObject> = { head: 'UUID', of: ({ uuid }) => textOf(uuid) };

const textOf = (value: unknown): string | undefined =>
  value === undefined ? undefined : typeof value === 'object' ? JSON.stringify(value) : String(value);

/** What the commands of `cnapi org` have in common. */
import type { Command } from 'commander';
import type { DocumentNoun } from '../../protocol/api/documents.ts';
import type { Organization } from '../../protocol/api/organizations.ts';
import type { JsonObject } from '../../protocol/bounded-json.ts';
import type { Context } from '../invocation/context.ts';
import { listDocuments } from '../lookup/documents.ts';
import { findOrganization } from '../lookup/owners.ts';
import type { Column } from '../terminal/table.ts';

export type Fields = JsonObject;

export const ofOrganization = (command: Command): Command =>
  command.argument('<organization>', 'the name or uuid of the organization');

export const organizationOf = ({ client }: Context, name: unknown): Promise<Organization> =>
  findOrganization(client, String(name));

/** Creates a document and prints its uuid, or with --json all of it. */
export async function create({ client, output, random }: Context, noun: DocumentNoun, fields: Fields): Promise<void> {
  const made = await client.documents(noun.contracts.create, { uuid: random.uuid(), ...fields });
  if (output.json) output.document(made);
  else output.line(String(made?.uuid));
}

export async function remove({ client }: Context, noun: DocumentNoun, { uuid }: { uuid: string }): Promise<void> {
  await client.documents(noun.contracts.delete, { uuid });
}

/** Prints the documents with these values. */
export async function list(
  { client, output }: Context,
  noun: DocumentNoun,
  { filter, columns }: { filter: Fields; columns: readonly Column<Fields>[] },
): Promise<void> {
  const found = await listDocuments(client, noun, filter);
  if (output.json) return output.document(found);
  output.table(columns, found);
  if (found.length === 0) output.note(`There are no ${noun.plural}`);
}

/** A column with the text of a field. */
export const column = (head: string, field: string): Column<Fields> => ({
  head,
  of: (row) => (row[field] === undefined ? undefined : String(row[field])),
  shrinks: true,
});

export const UUID = column('UUID', 'uuid');

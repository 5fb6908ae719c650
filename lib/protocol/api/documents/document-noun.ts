/**
 * A noun of the bucket store, declared once: its fields, which of them lists are filtered by, and
 * what its events show. Its five contracts follow from that; the server makes its bucket and its
 * routes from it (lib/control/documents), the command line its commands. docs/adding-a-noun.md adds
 * one.
 */
import { z } from 'zod';
import { answer, type Contract, errorResponse } from '../contract/contract.ts';
import type { ErrorCode } from '../contract/errors.ts';
import type { RequiredRole } from '../contract/roles.ts';
import { booleanText, boundedText, integer, MAX_LIST, number, timestamp, uuid } from '../contract/rules.ts';
import { EVENT_KINDS } from '../events.ts';

type IndexType = 'string' | 'number' | 'boolean' | 'timestamp' | 'uuid';

interface Declaration<Fields extends z.ZodRawShape> {
  /** The noun in the singular: the kind of its events and the name of its command. */
  name: string;
  plural: string;
  /** The name of its command, if that is another one. */
  command?: string;
  /** One line for the table of contents of the API. */
  about: string;
  /** All but `uuid`, which each document has. */
  fields: Fields;
  /** The fields by which lists are filtered. */
  indexes: { readonly [Field in keyof Fields]?: IndexType };
  /** No two documents have the same value of such a field, which is one of the indexes. */
  unique?: readonly (keyof Fields & string)[];
  /** Lists of indexes: no two documents have the same values of all fields of a list. */
  uniqueTogether?: readonly (readonly (keyof Fields & string)[])[];
  /** The role that changes need; operator when absent. */
  changesNeed?: RequiredRole;
  /** Incremented when an index is added or the events change. */
  version: number;
  /** The fields that events show, beside `uuid`. */
  eventFields: readonly (keyof Fields & string)[];
  /** The field with the uuid of a server, for those who follow the events of one server. */
  serverField?: keyof Fields & string;
  /** Fields with uuids of servers. The command line takes hostnames there, too. */
  serverLists?: readonly (keyof Fields & string)[];
  /** The columns of the command line's list, beside `uuid`. */
  listColumns: readonly (keyof Fields & string)[];
  /** What the help of its `create` command shows. */
  createExamples?: readonly string[];
  /** The command line has commands of its own for it, instead of those made from this. */
  hasOwnCommands?: boolean;
  /** There is a maximum of documents, beyond which `create` refuses. */
  isLimited?: boolean;
  /** Contracts of its own, beside the five. */
  further?: Readonly<Record<string, Contract>>;
}

type Operation = 'list' | 'get' | 'create' | 'update' | 'delete';

export interface DocumentNoun extends Declaration<z.ZodRawShape> {
  /** A whole document. */
  document: z.ZodObject;
  contracts: Readonly<Record<Operation, Contract>>;
}

/** A document of this noun. */
export type Document<Noun extends { fields: z.ZodRawShape }> = { uuid: string } & z.output<z.ZodObject<Noun['fields']>>;

const NAME = /^[a-z][a-z0-9_]{0,23}$/;
/** Parameters of lists, which fields cannot have as their names. */
const TAKEN = ['uuid', 'limit', 'after'];
const ETAG = { ETag: 'The version of the document, for `If-Match`' };
const IF_MATCH = { 'If-Match': 'Only if the document still has this ETag; otherwise 412' };

/** @throws TypeError for a name that is taken or cannot be the name of a table */
export function documentNoun<Fields extends z.ZodRawShape>(
  declaration: Declaration<Fields>,
): Omit<DocumentNoun, 'fields'> & { fields: Fields } {
  const { name, plural, fields } = declaration;
  for (const one of [name, plural]) if (!NAME.test(one)) throw new TypeError(`'${one}' cannot be the name of a noun`);
  if ([...EVENT_KINDS, 'gap'].includes(name)) throw new TypeError(`events of the kind ${name} exist already`);
  const taken = TAKEN.find((one) => one in fields);
  if (taken !== undefined) throw new TypeError(`${name}: a field cannot be named ${taken}`);
  const document = answer({ uuid: uuid(), ...fields }).meta({ id: capitalized(name) });
  return { ...declaration, document, contracts: contractsOf(declaration, document) };
}

function contractsOf(noun: Declaration<z.ZodRawShape>, document: z.ZodObject): DocumentNoun['contracts'] {
  const { name, plural, about, fields } = noun;
  const shared = { tag: { name: plural, description: about }, origin: 'own', preconditions: [] } as const;
  const change = { ...shared, ...(noun.changesNeed && { requiredRole: noun.changesNeed }) };
  const [one, many] = [capitalized(name), capitalized(plural)];
  const ofUuid = { uuid: uuid().describe(`Uuid of the ${name}`) };
  const found = (status: number) => ({ [status]: { description: 'OK', schema: document, headers: ETAG } });
  const missing = { 404: errorResponse(`No such ${name}`, 'ResourceNotFound') };
  const conflict = { 412: errorResponse('`If-Match` names another version', 'EtagConflict') };
  const clash = (what: string, ...others: ErrorCode[]) => ({
    409: errorResponse(what, 'EtagConflict', 'UniqueAttribute', ...others),
  });
  const tooMany: ErrorCode[] = noun.isLimited ? ['TooManyDocuments'] : [];
  const changes = Object.entries(fields).map(([field, schema]) => [field, withoutDefault(schema).nullish()]);
  return {
    list: {
      ...shared,
      name: `List${many}`,
      method: 'GET',
      path: `/${plural}`,
      summary: `Lists ${plural} in order of uuid, page by page`,
      params: z.object({
        ...filtersOf(noun),
        limit: integer('limit', 1, MAX_LIST).optional().describe(`At most this many; ${MAX_LIST} when absent`),
        after: uuid().optional().describe('The page after this uuid: the `next` of the page before'),
      }),
      responses: { 200: { description: 'OK', schema: pageOf(plural, document) } },
    },
    get: {
      ...shared,
      name: `Get${one}`,
      method: 'GET',
      path: `/${plural}/:uuid`,
      summary: `One ${name}`,
      params: z.object(ofUuid),
      responses: { ...found(200), ...missing },
    },
    create: {
      ...change,
      name: `Create${one}`,
      method: 'POST',
      path: `/${plural}`,
      summary: `Creates ${withArticle(name)}`,
      params: z.object({ uuid: uuid().optional().describe('A new one when absent'), ...fields }),
      responses: { ...found(201), ...clash(`The uuid, or the value of a unique field, is taken`, ...tooMany) },
    },
    update: {
      ...change,
      name: `Update${one}`,
      method: 'POST',
      path: `/${plural}/:uuid`,
      summary: `Changes the given fields of ${withArticle(name)}; null removes an optional one`,
      params: z.object({ ...ofUuid, ...Object.fromEntries(changes) }),
      requestHeaders: IF_MATCH,
      responses: { ...found(200), ...missing, ...conflict, ...clash('Other writes came first, or the value is taken') },
    },
    delete: {
      ...change,
      name: `Delete${one}`,
      method: 'DELETE',
      path: `/${plural}/:uuid`,
      summary: `Deletes ${withArticle(name)}`,
      params: z.object(ofUuid),
      requestHeaders: IF_MATCH,
      responses: { 204: { description: 'Deleted' }, ...missing, ...conflict },
    },
  };
}

function pageOf(plural: string, document: z.ZodObject): z.ZodType {
  const next = uuid().optional().describe('Ask for the page after this one; absent on the last page');
  return answer({ [plural]: z.array(document), next });
}

/** One parameter for each index. */
function filtersOf({ indexes }: Declaration<z.ZodRawShape>): Record<string, z.ZodType> {
  const rules: Record<IndexType, () => z.ZodType> = {
    string: () => boundedText(200).describe('The whole value, or its beginning and `*`'),
    number,
    boolean: booleanText,
    timestamp,
    uuid,
  };
  return Object.fromEntries(
    Object.entries(indexes).map(([field, type]) => {
      const rule = rules[type as IndexType]().optional();
      return [field, rule.description === undefined ? rule.describe('The whole value') : rule];
    }),
  );
}

/** An absent field of a change stays as it is. */
const withoutDefault = (schema: z.core.$ZodType): z.ZodType =>
  (schema instanceof z.ZodDefault ? schema.unwrap() : schema) as z.ZodType;

/** The name of a kind of document after `a` or `an`. */
export const withArticle = (name: string): string => `${/^([aeio]|u(?!s))/.test(name) ? 'an' : 'a'} ${name}`;

const capitalized = (word: string): string =>
  word.replace(/(^|_)([a-z])/g, (_, _before, letter: string) => letter.toUpperCase());

/**
 * The command of a noun of the bucket store, made from its declaration: `cnapi group list`,
 * `get`, `create`, `update`, `delete`.
 */
import { Command } from 'commander';
import { z } from 'zod';
import { type DocumentNoun, withArticle } from '../../protocol/api/documents/document-noun.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { type CommandRunner, collectValues, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServers } from '../lookup/find.ts';
import { findDocument, inWords, listDocuments } from '../lookup/find-document.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { parseCount } from '../terminal/count.ts';
import type { Column } from '../terminal/table.ts';
import { createDocument, deleteDocument, fieldColumn, printDocuments, UUID_COLUMN } from './documents.ts';

type Assignments = readonly string[] | undefined;

export function documentCommand(runner: CommandRunner, noun: DocumentNoun): Command {
  const { name, plural, about, fields, indexes } = noun;
  const words = inWords(name);
  const uuidOnly = 'its uuid, or the beginning of it';
  const [argument, which, example] =
    'name' in indexes
      ? [`<${name.replaceAll('_', '-')}>`, `its name, ${uuidOnly}`, 'NAME']
      : ['<uuid>', uuidOnly, 'UUID'];
  const assignment = `the fields are ${Object.keys(fields).join(', ')}${listsIn(noun)}`;
  const findUuid = async ({ client }: Context, text: unknown) => (await findDocument(client, noun, String(text))).uuid;
  const commandName = noun.command ?? name;
  const command = new Command(commandName).description(`${about}.`);
  const [filter = 'uuid'] = Object.keys(indexes);
  const [field = 'name'] = Object.keys(fields);
  const add = (subcommand: string, ...calls: string[]) => {
    const lines = calls.map((text) => `cnapi ${commandName} ${subcommand} ${text}`.trim());
    return withExamples(command.command(subcommand), lines);
  };
  add('list', '', `--where ${filter}=VALUE`)
    .description(`Lists ${inWords(plural)} in order of uuid.`)
    .option(
      '--where <field=value>',
      `the fields are ${Object.keys(indexes).join(', ')}; a text may end in *`,
      collectValues,
    )
    .option('--limit <count>', 'at most this many (default: all)')
    .action(runner.action((context, _, options) => list(noun, context, options as ListOptions)));
  add('get', example)
    .description(`Shows ${withArticle(words)}.`)
    .argument(argument, which)
    .action(
      runner.action(async (context, [text]) => show(context, noun, 'get', { uuid: await findUuid(context, text) })),
    );
  add('create', ...(noun.createExamples ?? [`${field}=VALUE`]))
    .description(`Creates ${withArticle(words)} and prints its uuid.`)
    .argument('<field=value...>', assignment)
    .action(
      runner.action(async (context, [values]) =>
        createDocument(context, noun, await withServers(context, noun, assigned(noun, values as Assignments))),
      ),
    );
  add('update', `${example} ${field}=VALUE`)
    .description(`Changes fields of ${withArticle(words)}; FIELD= removes an optional one.`)
    .argument(argument, which)
    .argument('<field=value...>', assignment)
    .action(
      runner.action(async (context, [text, values]) => {
        const changes = await withServers(context, noun, assigned(noun, values as Assignments, { emptyIs: null }));
        return show(context, noun, 'update', { uuid: await findUuid(context, text), ...changes });
      }),
    );
  add('delete', example)
    .description(`Deletes ${withArticle(words)}.`)
    .argument(argument, which)
    .action(
      runner.action(async (context, [text]) => deleteDocument(context, noun, { uuid: await findUuid(context, text) })),
    );
  return withExamples(command, [
    `cnapi ${commandName} list --where ${filter}=VALUE`,
    `cnapi ${commandName} list --json`,
  ]);
}

interface ListOptions {
  where?: string[];
  limit?: string;
}

async function list(noun: DocumentNoun, context: Context, { where, limit }: ListOptions): Promise<void> {
  const wanted = limit === undefined ? Number.POSITIVE_INFINITY : parseCount(limit, '--limit');
  const filter = assigned({ ...noun, fields: onlyIndexed(noun) }, where, { asText: true });
  const found = await listDocuments(context.client, noun, filter, wanted);
  printDocuments(context, found, { plural: `such ${inWords(noun.plural)}`, columns: columnsOf(noun) });
}

async function show(
  { client, output }: Context,
  { contracts }: DocumentNoun,
  operation: 'get' | 'update',
  params: JsonObject,
): Promise<void> {
  const found = await client.documents(contracts[operation], params);
  if (output.json) output.document(found);
  else output.facts(Object.entries(found));
}

const columnsOf = ({ listColumns }: DocumentNoun): Column<JsonObject>[] => [
  UUID_COLUMN,
  ...listColumns.map((field) => fieldColumn(field.toUpperCase(), field)),
];

function onlyIndexed({ fields, indexes }: DocumentNoun): DocumentNoun['fields'] {
  return Object.fromEntries(Object.entries(fields).filter(([field]) => field in indexes));
}

interface Reading {
  emptyIs?: null;
  /** Reads the value as a text. Set for queries, which contain only texts. */
  asText?: boolean;
}

/** The part of the help that says which fields accept names of servers. */
const listsIn = ({ serverLists = [] }: DocumentNoun): string =>
  serverLists.map((field) => `; ${field}=SERVER,SERVER takes uuids, beginnings of them, and hostnames`).join('');

/** The same, with the uuids of the servers that the user named. @throws UsageError */
async function withServers(
  { client }: Context,
  { serverLists = [] }: DocumentNoun,
  fields: JsonObject,
): Promise<JsonObject> {
  const found: Record<string, unknown> = { ...fields };
  for (const field of serverLists) {
    const names = found[field];
    if (!Array.isArray(names)) continue;
    found[field] = (await findServers(client, names.map(String))).map(({ uuid }) => uuid);
  }
  return found;
}

/** What `field=value` words say. @throws UsageError */
function assigned(
  { name, fields, serverLists = [] }: DocumentNoun,
  words: Assignments = [],
  { emptyIs, asText }: Reading = {},
): JsonObject {
  const pairs = words.map((word) => {
    const [, field = '', text = ''] = /^([^=]*)=(.*)$/s.exec(word) ?? [];
    const schema = Object.hasOwn(fields, field) ? fields[field] : undefined;
    if (schema === undefined || !word.includes('=')) {
      const fix = 'name' in fields && !word.includes('=') ? `: did you mean name=${word}?` : '';
      throw new UsageError(`${word} is not FIELD=VALUE with one of the fields ${Object.keys(fields).join(', ')}${fix}`);
    }
    if (text === '' && emptyIs === null) return [field, null];
    const type = asText === true ? 'string' : typeOf(schema as z.ZodType);
    if (text === '' && type !== 'string')
      throw new UsageError(`${field}= has no value: give one, or leave the field out`);
    if (serverLists.includes(field) && !text.startsWith('[')) return [field, text.split(',')];
    return [field, type === 'string' ? text : parseAs(`${inWords(name)} ${field}`, type, text)];
  });
  return Object.fromEntries(pairs);
}

/** The type of a field in JSON; a field of any type takes texts. */
function typeOf(schema: z.ZodType): string {
  return String(z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }).type ?? 'string');
}

/** @throws UsageError */
function parseAs(what: string, type: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    const such = type === 'array' ? `, such as '["one","two"]'` : '';
    throw new UsageError(`${what} is a JSON ${type}${such}; ${text} is not`, { cause });
  }
}

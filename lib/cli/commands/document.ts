/**
 * The command of a noun of the bucket store, made from its declaration: `cnapi image list`, `get`,
 * `create`, `update`, `delete`.
 */
import { Command } from 'commander';
import { z } from 'zod';
import { type DocumentNoun, withArticle } from '../../protocol/api/documents.ts';
import type { JsonObject } from '../../protocol/bounded-json.ts';
import { type CommandRunner, examples, repeated } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { listDocuments } from '../lookup/documents.ts';
import { parseCount } from '../terminal/count.ts';
import type { Column } from '../terminal/table.ts';
import { UsageError } from '../terminal/usage-error.ts';

type Assignments = readonly string[] | undefined;

export function documentCommand(runner: CommandRunner, noun: DocumentNoun): Command {
  const { name, plural, about, fields, indexes } = noun;
  const uuid = `of the ${name}`;
  const assignment = `of ${Object.keys(fields).join(', ')}`;
  const commandName = noun.command ?? name;
  const command = new Command(commandName).description(`${about}.`);
  const [filter = 'uuid'] = Object.keys(indexes);
  const [field = 'name'] = Object.keys(fields);
  const add = (subcommand: string, ...words: string[]) => {
    const lines = words.map((text) => `cnapi ${commandName} ${subcommand} ${text}`.trim());
    return examples(command.command(subcommand), lines);
  };
  add('list', '', `--where ${filter}=VALUE`)
    .description(`Lists ${plural.replaceAll('_', ' ')} in order of uuid.`)
    .option('--where <field=value>', `of ${Object.keys(indexes).join(', ')}; a text may end in *`, repeated)
    .option('--limit <count>', 'at most this many (default: all)')
    .action(runner.action((context, _, options) => list(noun, context, options as ListOptions)));
  add('get', 'UUID')
    .description(`Shows ${withArticle(name)}.`)
    .argument('<uuid>', uuid)
    .action(runner.action((context, [id]) => show(context, noun, 'get', { uuid: id })));
  add('create', `${field}=VALUE`)
    .description(`Creates ${withArticle(name)} and prints its uuid.`)
    .argument('<field=value...>', assignment)
    .action(runner.action((context, [given]) => create(noun, context, given as Assignments)));
  add('update', `UUID ${field}=VALUE`)
    .description(`Changes fields of ${withArticle(name)}; FIELD= removes an optional one.`)
    .argument('<uuid>', uuid)
    .argument('<field=value...>', assignment)
    .action(
      runner.action((context, [id, given]) =>
        show(context, noun, 'update', { uuid: id, ...assigned(noun, given as Assignments, { emptyIs: null }) }),
      ),
    );
  add('delete', 'UUID')
    .description(`Deletes ${withArticle(name)}.`)
    .argument('<uuid>', uuid)
    .action(
      runner.action(async ({ client }, [id]) => void (await client.documents(noun.contracts.delete, { uuid: id }))),
    );
  return examples(command, [`cnapi ${commandName} list --where ${filter}=VALUE`, `cnapi ${commandName} list --json`]);
}

interface ListOptions {
  where?: string[];
  limit?: string;
}

async function list(noun: DocumentNoun, { client, output }: Context, { where, limit }: ListOptions): Promise<void> {
  const wanted = limit === undefined ? Number.POSITIVE_INFINITY : parseCount(limit, '--limit');
  const filter = assigned({ ...noun, fields: onlyIndexed(noun) }, where, { asText: true });
  const found = await listDocuments(client, noun, filter, wanted);
  if (output.json) return output.document(found);
  output.table(columnsOf(noun), found);
  if (found.length === 0) output.note(`There are no such ${noun.plural}`);
}

async function create(noun: DocumentNoun, context: Context, given: Assignments): Promise<void> {
  const { client, output, random } = context;
  const made = await client.documents(noun.contracts.create, { uuid: random.uuid(), ...assigned(noun, given) });
  if (output.json) output.document(made);
  else output.line(String(made?.uuid));
}

async function show(
  { client, output }: Context,
  { contracts }: DocumentNoun,
  operation: 'get' | 'update',
  params: JsonObject,
): Promise<void> {
  const found = await client.documents(contracts[operation], params);
  if (output.json) output.document(found);
  else output.facts(Object.entries(found ?? {}));
}

const columnsOf = ({ listColumns }: DocumentNoun): Column<JsonObject>[] => [
  { head: 'UUID', of: ({ uuid }) => textOf(uuid) },
  ...listColumns.map((field) => ({
    head: field.toUpperCase(),
    of: (row: JsonObject) => textOf(row[field]),
    shrinks: true,
  })),
];

const textOf = (value: unknown): string | undefined =>
  value === undefined ? undefined : typeof value === 'object' ? JSON.stringify(value) : String(value);

function onlyIndexed({ fields, indexes }: DocumentNoun): DocumentNoun['fields'] {
  return Object.fromEntries(Object.entries(fields).filter(([field]) => field in indexes));
}

interface Reading {
  emptyIs?: null;
  /** For a query, which has only texts. */
  asText?: boolean;
}

/** What `field=value` words say. @throws UsageError */
function assigned(
  { name, fields }: DocumentNoun,
  words: Assignments = [],
  { emptyIs, asText }: Reading = {},
): JsonObject {
  const pairs = words.map((word) => {
    const [, field = '', text = ''] = /^([^=]*)=(.*)$/s.exec(word) ?? [];
    const schema = fields[field];
    if (schema === undefined || !word.includes('='))
      throw new UsageError(`${word} is not FIELD=VALUE with one of the fields ${Object.keys(fields).join(', ')}`);
    if (text === '' && emptyIs === null) return [field, null];
    return [field, asText === true ? text : readAs(`${name} ${field}`, schema as z.ZodType, text)];
  });
  return Object.fromEntries(pairs);
}

/** A text, or JSON for a field that has no texts. @throws UsageError */
function readAs(what: string, schema: z.ZodType, text: string): unknown {
  const { type } = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' });
  if (type === undefined || type === 'string') return text;
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new UsageError(`${what} is a JSON ${type}, which ${text} is not`, { cause });
  }
}

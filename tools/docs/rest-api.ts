/**
 * Generates docs/rest-api.md from the contracts of the API, so that it matches what is served.
 * Pure.
 */
import type { Contract } from '../../lib/protocol/api/contract/contract.ts';
import { pathParamsOf, requiredRoleOf, tagOf, tagsOf } from '../../lib/protocol/api/contract/contract.ts';
import { codesOf, ERROR_CODES } from '../../lib/protocol/api/contract/errors.ts';
import { openApiDocument } from '../../lib/protocol/api/contract/openapi.ts';

interface Schema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  const?: unknown;
  enum?: unknown[];
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: Schema | boolean;
}

interface Operation {
  parameters: { name: string; in: string; required: boolean; description?: string; schema: Schema }[];
  requestBody?: { content: { 'application/json': { schema: Schema } } };
  responses: Record<string, { content?: Record<string, { schema: Schema }> }>;
}

interface Document {
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Schema> };
}

const HEAD = `# The REST API

This page is generated from the contracts in \`lib/protocol/api\` by \`npm run docs\`; a test compares
the two. Each instance serves the same as an OpenAPI document, at \`GET /openapi.json\`.

Parameters may be in the query or, for POST and PUT, in a JSON body. Every error has the body
[Error](#error). Besides the errors that a route lists, any route may answer those under
[Errors](#errors). Objects may get more fields in later versions.

A caller may send up to 16 requests on one connection before their answers. Answers come in the
order of the requests. Only GETs are carried out in parallel: any other request begins when all
requests before it are answered, and nothing begins behind it before its own answer. Nothing behind
an answer with \`Connection: close\` is carried out.
`;

export function restApiPage(contracts: readonly Contract[]): string {
  const document = JSON.parse(openApiDocument(contracts, '')) as Document;
  const tags = tagsOf(contracts).map(({ name, description }) => {
    const routes = contracts.filter((one) => tagOf(one).name === name).map((one) => route(one, document));
    return [`## ${name}\n\n${description}.\n`, ...routes].join('\n');
  });
  const { Error: error = {}, ErrorCode: _codes, ...schemas } = document.components.schemas;
  const objects = Object.entries({ Error: error, ...schemas }).map(([name, schema]) => object(name, schema));
  return [HEAD, ...tags, '## Objects\n', ...objects, errors()].join('\n');
}

function route(contract: Contract, { paths }: Document): string {
  const operation = paths[contract.path.replace(/:(\w+)/g, '{$1}')]?.[contract.method.toLowerCase()];
  if (operation === undefined) throw new Error(`${contract.name} is not in the document`);
  const requiredRole = requiredRoleOf(contract);
  const parts = [
    `### ${contract.name}\n`,
    `\`${contract.method} ${contract.path}\` · ${requiredRole === 'anyone' ? 'needs no token' : `role \`${requiredRole}\``}\n`,
    `${contract.summary}.\n`,
    table('Parameter', parametersOf(contract, operation)),
    table('Header', Object.entries(contract.requestHeaders ?? {})),
    table('Answer', answersOf(contract, operation)),
  ];
  return parts.filter((part) => part !== '').join('\n');
}

type Row = readonly [string, string];

function parametersOf(contract: Contract, { parameters, requestBody }: Operation): Row[] {
  const given = parameters.filter((one) => one.in === 'query');
  const { properties = {}, required = [] } = requestBody?.content['application/json'].schema ?? {};
  const inBody = Object.entries(properties).map(([name, schema]) => ({
    name,
    schema,
    required: required.includes(name),
  }));
  const inPath = parameters.filter(({ name }) => pathParamsOf(contract.path).includes(name));
  return [...inPath, ...given, ...inBody].map((one) => {
    const { description = one.schema.description } = one as { description?: string };
    return row(one.name, one.schema, { description, isOptional: !one.required });
  });
}

function answersOf(contract: Contract, { responses }: Operation): Row[] {
  return Object.entries(contract.responses).map(([status, { description, schema, codes }]) => {
    const isError = Number(status) >= 400 && schema === undefined;
    const [content] = Object.values(responses[status]?.content ?? {});
    const body = isError ? codesOf(Number(status), codes).map(code).join(', ') : content && typeOf(content.schema);
    return [status, [description, body].filter(Boolean).join(' — ')];
  });
}

function object(name: string, schema: Schema): string {
  const title = `### ${name}\n`;
  const about = schema.description === undefined ? '' : `${schema.description}.\n`;
  const several = schema.oneOf ?? schema.anyOf;
  if (several !== undefined) {
    const kinds = several.map((one) => `- ${typeOf(one)}`).join('\n');
    return [title, about, `One of:\n\n${kinds}\n`].filter(Boolean).join('\n');
  }
  return [title, about, table('Field', fieldsOf(schema))].filter(Boolean).join('\n');
}

function fieldsOf({ properties = {}, required = [] }: Schema): Row[] {
  return Object.entries(properties).map(([name, schema]) =>
    row(name, schema, { description: schema.description, isOptional: !required.includes(name) }),
  );
}

function row(
  name: string,
  schema: Schema,
  { description, isOptional }: { description: string | undefined; isOptional: boolean },
): Row {
  const type = `${typeOf(schema)}${isOptional ? ', optional' : ''}`;
  return [code(name), description === undefined ? type : `${type} — ${description}`];
}

function errors(): string {
  return `## Errors\n\n${table(
    'Code',
    Object.entries(ERROR_CODES).map(([name, meaning]) => [code(name), meaning]),
  )}`;
}

function table(head: string, rows: readonly Row[]): string {
  if (rows.length === 0) return '';
  const cells = rows.map(([first, second]) => `| ${first} | ${second.replaceAll('|', '\\|')} |`);
  return [`| ${head} | |`, '|---|---|', ...cells, ''].join('\n');
}

function typeOf(schema: Schema): string {
  const { $ref, items, properties, required = [], additionalProperties } = schema;
  const several = schema.anyOf ?? schema.oneOf;
  if ($ref !== undefined) return link($ref.slice($ref.lastIndexOf('/') + 1));
  if (schema.const !== undefined) return code(JSON.stringify(schema.const));
  if (schema.enum !== undefined) return schema.enum.map((one) => code(String(one))).join(' or ');
  if (several !== undefined) return several.map(typeOf).join(' or ');
  if (items !== undefined) return `list of ${typeOf(items)}`;
  if (properties !== undefined) {
    const fields = Object.entries(properties).map(
      ([name, one]) => `${code(required.includes(name) ? name : `${name}?`)}: ${typeOf(one)}`,
    );
    return `object (${fields.join('; ') || 'empty'})`;
  }
  if (schema.type === 'object' && typeof additionalProperties === 'object' && typeOf(additionalProperties) !== 'any')
    return `map of ${typeOf(additionalProperties)}`;
  return [schema.type ?? 'any'].flat().join(' or ');
}

const code = (text: string) => `\`${text}\``;
const link = (name: string) => (name === 'ErrorCode' ? '[code](#errors)' : `[${name}](#${name.toLowerCase()})`);

/**
 * The OpenAPI 3.1 document of a list of contracts, made from the schemas that validate requests.
 */
import { z } from 'zod';
import type { JsonObject } from '../../json/bounded-json.ts';
import {
  type Contract,
  EXTENSIBLE,
  pathParamsOf,
  type ResponseSpec,
  requiredRoleOf,
  tagOf,
  tagsOf,
  takesBody,
} from './contract.ts';
import { codesOf, errorBody, errorBodyWith } from './errors.ts';

/** Errors with one of these statuses say when a retry makes sense. */
const RETRIED: ReadonlySet<number> = new Set([408, 429, 503]);

/**
 * Made once for each list, because a process has one version: to make it takes some ten
 * milliseconds, and to encode it three, for a request of sixty bytes that needs no token.
 */
const documents = new WeakMap<readonly Contract[], Buffer>();

/** The document in UTF-8, as it is served. */
export function openApiBytes(contracts: readonly Contract[], version: string): Buffer {
  const known = documents.get(contracts);
  if (known !== undefined) return known;
  const document = Buffer.from(openApiDocument(contracts, version));
  documents.set(contracts, document);
  return document;
}

export function openApiDocument(contracts: readonly Contract[], version: string): string {
  return JSON.stringify(makeDocument(contracts, version));
}

function makeDocument(contracts: readonly Contract[], version: string): JsonObject {
  const paths: Record<string, JsonObject> = {};
  for (const contract of contracts) {
    const path = contract.path.replace(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [contract.method.toLowerCase()]: operation(contract) };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'cnapi',
      version,
      summary: 'A highly available control plane for a fleet of servers',
      license: { name: 'No license: all rights reserved', identifier: 'LicenseRef-UNLICENSED' },
    },
    servers: [{ url: '/', description: 'The instance that serves this document; any instance answers any request' }],
    tags: tagsOf(contracts),
    paths,
    components: {
      schemas: namedSchemas([errorBody, ...contracts.flatMap(schemasOf)]),
      securitySchemes: {
        token: { type: 'http', scheme: 'bearer', description: 'Where `access` is `tokens`; see docs/access.md' },
      },
      responses: refusals,
    },
  };
}

const failure = responseObject({ description: 'Refused or failed; `code` says how', schema: errorBody });

/** If tokens are required, any request may get these answers. */
const refusals = {
  Unauthorized: errorResponseObject(401, {
    description: 'No token, or none that is good; `TokenEnded`: it ended while the request was carried out',
    headers: { 'WWW-Authenticate': 'How to authenticate' },
  }),
  Forbidden: errorResponseObject(403, {
    description: "The token's role is too small, or the request came from where none may",
  }),
  TooManyRequests: errorResponseObject(429, {
    description: 'Too much of this address or token; again after `Retry-After` seconds',
  }),
};
const ALL_REFUSALS = { 401: 'Unauthorized', 403: 'Forbidden', 429: 'TooManyRequests' };

function refusalsOf(contract: Contract): JsonObject {
  const names = requiredRoleOf(contract) === 'anyone' ? { 429: 'TooManyRequests' } : ALL_REFUSALS;
  return Object.fromEntries(
    Object.entries(names).map(([status, name]) => [status, { $ref: `#/components/responses/${name}` }]),
  );
}

function operation(contract: Contract): JsonObject {
  const { properties = {}, required = [] } = jsonSchema(contract.params) as {
    properties?: Record<string, JsonObject>;
    required?: string[];
  };
  const inPath = new Set(pathParamsOf(contract.path));
  const others = Object.keys(properties).filter((name) => !inPath.has(name));
  const hasBody = contract.method !== 'DELETE' && takesBody(contract);
  const parameter = (name: string, where: string) => {
    const { description, ...schema } = properties[name] as JsonObject;
    return {
      name,
      in: where,
      required: required.includes(name),
      schema,
      ...(description === undefined ? {} : { description }),
    };
  };
  return {
    operationId: contract.name,
    summary: contract.summary,
    tags: [tagOf(contract).name],
    ...(requiredRoleOf(contract) === 'anyone'
      ? { security: [] }
      : { security: [{ token: [] }], 'x-role': requiredRoleOf(contract) }),
    parameters: [
      ...[...inPath].map((name) => parameter(name, 'path')),
      ...(hasBody ? [] : others.map((name) => parameter(name, 'query'))),
      ...Object.entries(contract.requestHeaders ?? {}).map(([name, description]) => header(name, description)),
    ],
    ...(hasBody ? { requestBody: requestBody(contract, properties, others, required) } : {}),
    responses: {
      ...refusalsOf(contract),
      ...Object.fromEntries(
        Object.entries(contract.responses).map(([status, answer]) => [status, responseOf(Number(status), answer)]),
      ),
      default: failure,
    },
  };
}

function requestBody(
  contract: Contract,
  properties: Record<string, JsonObject>,
  names: string[],
  required: string[],
): JsonObject {
  const ownRequired = required.filter((name) => names.includes(name));
  const schema = {
    type: 'object',
    properties: Object.fromEntries(names.map((name) => [name, properties[name]])),
    ...(ownRequired.length > 0 ? { required: ownRequired } : {}),
    ...(contract.lenient === true ? {} : { additionalProperties: false }),
  };
  return { required: ownRequired.length > 0, content: { 'application/json': { schema } } };
}

function header(name: string, description: string): JsonObject {
  return { name, in: 'header', required: false, description, schema: { type: 'string' } };
}

/** Every error has a body. */
function responseOf(status: number, one: ResponseSpec): JsonObject {
  return status >= 400 && one.schema === undefined ? errorResponseObject(status, one) : responseObject(one);
}

function errorResponseObject(status: number, { description, codes, headers = {} }: ResponseSpec): JsonObject {
  const all = RETRIED.has(status) ? { ...headers, 'Retry-After': 'Seconds after which to try again' } : headers;
  return responseObject({ description, schema: errorBodyWith(codesOf(status, codes)), headers: all });
}

function responseObject({
  description,
  schema,
  example,
  contentType = 'application/json',
  headers = {},
}: ResponseSpec): JsonObject {
  const described = Object.entries(headers).map(([name, text]) => [
    name,
    { description: text, schema: { type: 'string' } },
  ]);
  const content = schema && {
    content: { [contentType]: { schema: jsonSchema(schema), ...(example !== undefined && { example }) } },
  };
  return { description, ...(described.length > 0 && { headers: Object.fromEntries(described) }), ...content };
}

function schemasOf({ responses }: Contract): z.ZodType[] {
  return Object.values(responses).flatMap(({ schema }) => schema ?? []);
}

/**
 * The schema of a value as callers write it, before it is lower-cased, split and so on. Named
 * schemas are found among the components.
 */
function jsonSchema(schema: z.ZodType): JsonObject {
  const { $schema, $defs, id, ...rest } = withDefinitions(schema);
  return rest;
}

/** The named schemas that these schemas use. */
function namedSchemas(schemas: readonly z.ZodType[]): JsonObject {
  const named = schemas.map((schema) => withDefinitions(z.object({ schema })).$defs ?? {});
  return Object.fromEntries(named.flatMap((one) => Object.entries(one)).map(([name, { id, ...rest }]) => [name, rest]));
}

function withDefinitions(schema: z.ZodType): JsonObject & { $defs?: Record<string, JsonObject> } {
  const described = z.toJSONSchema(schema, {
    io: 'input',
    unrepresentable: 'any',
    reused: 'inline',
    override: ({ jsonSchema }) => describeFields(jsonSchema),
  });
  return JSON.parse(JSON.stringify(described).replaceAll('"#/$defs/', '"#/components/schemas/'));
}

/** All fields of an answer are declared, except where its schema is marked as open. */
function describeFields(schema: JsonObject): void {
  if (schema.properties === undefined) return;
  if (schema[EXTENSIBLE] !== true) delete schema.additionalProperties;
  delete schema[EXTENSIBLE];
}

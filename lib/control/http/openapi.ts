/** The OpenAPI 3.1 document of a route table, made from the schemas that validate requests. */
import { z } from 'zod';
import { needOf, pathParamsOf, type ResponseDescription, type Route, takesBody } from './route.ts';

type Json = Record<string, unknown>;

/** Made once for each table: it takes some ten milliseconds, in which nothing else is served. */
const documents = new WeakMap<readonly Route[], string>();

/** As text; one text per table, because a process has one version. */
export function openApiDocument(routes: readonly Route[], version: string): string {
  const known = documents.get(routes);
  if (known !== undefined) return known;
  const document = JSON.stringify(makeDocument(routes, version));
  documents.set(routes, document);
  return document;
}

function makeDocument(routes: readonly Route[], version: string): Json {
  const paths: Record<string, Json> = {};
  for (const route of routes) {
    const path = route.path.replace(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operation(route) };
  }
  return {
    openapi: '3.1.0',
    info: { title: 'cnapi', version, summary: 'A highly available control plane for a fleet of servers' },
    paths,
    components: {
      schemas: { Error: errorSchema, ...namedSchemas(routes) },
      securitySchemes: {
        token: { type: 'http', scheme: 'bearer', description: 'Where `access` is `tokens`; see docs/access.md' },
      },
      responses: refusals,
    },
  };
}

const errorSchema = {
  type: 'object',
  required: ['code', 'message'],
  properties: {
    code: { type: 'string' },
    message: { type: 'string' },
    errors: {
      type: 'array',
      items: {
        type: 'object',
        required: ['field', 'code', 'message'],
        properties: { field: { type: 'string' }, code: { type: 'string' }, message: { type: 'string' } },
      },
    },
  },
};

const failure = {
  description: 'Refused or failed; `code` says how',
  content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
};

const refusal = (description: string, headers?: Json): Json => ({
  ...failure,
  description,
  ...(headers ? { headers } : {}),
});
const textHeader = { schema: { type: 'string' } };

/** If tokens are required, any request may get these answers. */
const refusals = {
  Unauthorized: refusal('No token, or none that is good; `TokenEnded`: it ended while the request was carried out', {
    'WWW-Authenticate': textHeader,
  }),
  Forbidden: refusal("The token's role is too small, or the request came from where none may"),
  TooManyRequests: refusal('Too much of this address or token; again after `Retry-After` seconds', {
    'Retry-After': textHeader,
  }),
};
const refusalsOf = (route: Route): Json => {
  const names = needOf(route) === 'anyone' ? { 429: 'TooManyRequests' } : ALL_REFUSALS;
  return Object.fromEntries(
    Object.entries(names).map(([status, name]) => [status, { $ref: `#/components/responses/${name}` }]),
  );
};
const ALL_REFUSALS = { 401: 'Unauthorized', 403: 'Forbidden', 429: 'TooManyRequests' };

function operation(route: Route): Json {
  const { properties = {}, required = [] } = jsonSchema(route.params) as {
    properties?: Record<string, Json>;
    required?: string[];
  };
  const inPath = new Set(pathParamsOf(route.path));
  const others = Object.keys(properties).filter((name) => !inPath.has(name));
  const hasBody = route.method !== 'DELETE' && takesBody(route);
  const parameter = (name: string, where: string) => {
    const { description, ...schema } = properties[name] as Json;
    return {
      name,
      in: where,
      required: required.includes(name),
      schema,
      ...(description === undefined ? {} : { description }),
    };
  };
  return {
    operationId: route.name,
    summary: route.summary,
    tags: [route.tag],
    ...(needOf(route) === 'anyone' ? { security: [] } : { security: [{ token: [] }], 'x-role': needOf(route) }),
    parameters: [
      ...[...inPath].map((name) => parameter(name, 'path')),
      ...(hasBody ? [] : others.map((name) => parameter(name, 'query'))),
      ...Object.entries(route.requestHeaders ?? {}).map(([name, description]) => header(name, description)),
    ],
    ...(hasBody ? { requestBody: requestBody(route, properties, others, required) } : {}),
    responses: {
      ...refusalsOf(route),
      ...Object.fromEntries(
        Object.entries(route.responses).map(([status, one]) => [status, responseWith(status, one)]),
      ),
      default: failure,
    },
  };
}

function requestBody(route: Route, properties: Record<string, Json>, names: string[], required: string[]): Json {
  const ownRequired = required.filter((name) => names.includes(name));
  const schema = {
    type: 'object',
    properties: Object.fromEntries(names.map((name) => [name, properties[name]])),
    ...(ownRequired.length > 0 ? { required: ownRequired } : {}),
    ...(route.lenient === true ? {} : { additionalProperties: false }),
  };
  return { required: ownRequired.length > 0, content: { 'application/json': { schema } } };
}

function header(name: string, description: string): Json {
  return { name, in: 'header', required: false, description, schema: { type: 'string' } };
}

/** Every error has a body. */
function responseWith(status: string, described: ResponseDescription): Json {
  const isError = Number(status) >= 400 && described.schema === undefined;
  return isError ? { ...failure, description: described.description } : response(described);
}

function response({ description, schema, example, contentType = 'application/json' }: ResponseDescription): Json {
  if (schema === undefined) return { description };
  const content = { schema: jsonSchema(schema), ...(example === undefined ? {} : { example }) };
  return { description, content: { [contentType]: content } };
}

/**
 * As callers write a value: before lower-casing, splitting and the like. Named schemas are found
 * among the components.
 */
function jsonSchema(schema: z.ZodType): Json {
  const { $schema, $defs, id, ...rest } = withDefinitions(schema);
  return rest;
}

/** The named schemas that the responses use. */
function namedSchemas(routes: readonly Route[]): Json {
  const schemas = routes.flatMap((route) => Object.values(route.responses).flatMap(({ schema }) => schema ?? []));
  const named = schemas.map((schema) => withDefinitions(z.object({ schema })).$defs ?? {});
  return Object.fromEntries(named.flatMap((one) => Object.entries(one)).map(([name, { id, ...rest }]) => [name, rest]));
}

function withDefinitions(schema: z.ZodType): Json & { $defs?: Record<string, Json> } {
  const described = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any', reused: 'inline' });
  return JSON.parse(JSON.stringify(described).replaceAll('"#/$defs/', '"#/components/schemas/'));
}

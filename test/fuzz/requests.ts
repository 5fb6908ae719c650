/**
 * Requests made of the OpenAPI document that an instance serves: each operation with the parameters
 * that it declares, valid and not, and then what HTTP itself allows any caller to do to them:
 * paths, headers, bodies, framing. `{server}`, `{task}`, `{ticket}` and `{instance}` in them stand
 * for ids that are known only while it runs, `{mebibyte}` for as much.
 */
import fc from 'fast-check';
import { brokenJson, hostileJson, hostileName, hostileText, objectText, shortHostileText } from './hostile.ts';
import { jsonOf, type Schema, textOf } from './schema.ts';

export interface OpenApi {
  paths: Record<string, Record<string, Operation>>;
}

interface Parameter {
  name: string;
  in: string;
  required: boolean;
  schema: Schema;
}

interface Operation {
  operationId: string;
  parameters: Parameter[];
  requestBody?: { content: { 'application/json': { schema: Schema } } };
}

export interface PlannedRequest {
  /**
   * The operation it was generated from; after alterations it may belong to another operation, or
   * to none.
   */
  operationId: string;
  method: string;
  target: string;
  headers: [string, string][];
  body: string;
  /** How the body's text is encoded as bytes. */
  encoding: 'utf8' | 'latin1' | 'utf16le';
  framing: Framing;
}

/**
 * `length`: correct. `chunked`: in pieces. `short`: less than announced. `long`: more than
 * announced. `bare`: nothing announced. `both`: a length and chunks. `bad-chunks`: invalid chunks.
 * `unfinished`: chunks without an end.
 */
const FRAMINGS = ['length', 'chunked', 'short', 'long', 'bare', 'both', 'bad-chunks', 'unfinished'] as const;
type Framing = (typeof FRAMINGS)[number];

export interface RequestScript {
  requests: PlannedRequest[];
  /** All are sent before the first answer is awaited. */
  isPipelined: boolean;
  /** Bytes per write; 0: all at once. */
  pieceBytes: number;
}

const UUIDS = ['{server}', '{task}', '{ticket}', '{instance}', '{unknown}'];
const OPTIONS = { hostileOneIn: 8, uuids: UUIDS };
/** An id of the operation's own kind, so that it finds an object. */
const KNOWN: Record<string, string> = {
  server_uuid: '{server}',
  taskid: '{task}',
  ticket_uuid: '{ticket}',
  uuid: '{instance}',
};
/** Waits for an answer are short, where the request can say so. */
const SHORT_WAITS = ['0', '1', '"0"', '-1', '1.5', '"1"', '1e400', '""', 'null', '"x"'];

export function requestScripts(document: OpenApi): fc.Arbitrary<RequestScript> {
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => requestOf(method.toUpperCase(), path, operation)),
  );
  return fc.record({
    requests: fc.array(fc.oneof(...operations), { minLength: 1, maxLength: 8 }),
    isPipelined: fc.boolean(),
    pieceBytes: fc.oneof({ weight: 9, arbitrary: fc.constant(0) }, fc.constantFrom(1, 7, 1_000)),
  });
}

function requestOf(method: string, path: string, operation: Operation): fc.Arbitrary<PlannedRequest> {
  const { operationId, parameters, requestBody } = operation;
  const request = fc.record({
    method: fc.constant(method),
    path: pathOf(path, parameters),
    query: queryOf(parameters.filter((one) => one.in === 'query')),
    headers: headersOf(parameters.filter((one) => one.in === 'header')),
    content: contentOf(requestBody?.content['application/json'].schema),
    trick: fc.oneof({ weight: 11, arbitrary: fc.constant(undefined) }, trick),
  });
  return request.map(({ method, path, query, headers, content, trick }) => {
    const { type, ...sent } = content;
    const all = type === undefined ? headers : [...headers, ['Content-Type', type] as [string, string]];
    const whole = { operationId, method, target: `${path}${query}`, headers: all, ...sent };
    return trick === undefined ? whole : trick(whole);
  });
}

function pathOf(path: string, parameters: readonly Parameter[]): fc.Arbitrary<string> {
  const segments = path.split('/').slice(1);
  return fc
    .tuple(
      ...segments.map((segment) => {
        const name = /^\{(\w+)\}$/.exec(segment)?.[1];
        if (name === undefined) return fc.constant(segment);
        const schema = parameters.find((one) => one.name === name)?.schema ?? {};
        return fc.oneof(
          { weight: 8, arbitrary: fc.constant(KNOWN[name] ?? '{unknown}') },
          { weight: 2, arbitrary: textOf({ ...schema, format: 'uuid' }, OPTIONS) },
          { weight: 2, arbitrary: shortHostileText.map(encoded) },
        );
      }),
    )
    .map((parts) => `/${parts.join('/')}`);
}

function queryOf(parameters: readonly Parameter[]): fc.Arbitrary<string> {
  const pairs = parameters.map(({ name, schema }) => {
    const value = name === 'timeout' ? fc.constantFrom(...SHORT_WAITS) : jsonOf(schema, OPTIONS);
    const given = value.map((text) => [name, unquoted(text)] as [string, string]);
    // A wait without a time lasts an hour.
    return name === 'timeout' ? given.map((pair) => [pair]) : fc.array(given, { maxLength: 1 });
  });
  const strange = fc.oneof(
    { weight: 6, arbitrary: fc.constant([]) },
    fc.array(fc.tuple(hostileName, shortHostileText), { maxLength: 3 }),
  );
  const written = fc.tuple(fc.tuple(...pairs), strange, fc.integer({ min: 0, max: 7 }));
  return written.map(([own, others, oddity]) => {
    const all = [...own.flat(), ...others];
    if (oddity === 0 && all[0] !== undefined) all.push(all[0]);
    return all.length === 0 ? '' : `?${all.map(([name, value]) => `${encoded(name)}=${encoded(value)}`).join('&')}`;
  });
}

function headersOf(parameters: readonly Parameter[]): fc.Arbitrary<[string, string][]> {
  const declared = parameters.map(({ name }) =>
    fc.array(
      shortHostileText.map((text) => [name, text] as [string, string]),
      { maxLength: 2 },
    ),
  );
  const values = fc.oneof(shortHostileText, fc.constantFrom('1', 'x', ','));
  const names = [
    'X-Request-Id',
    'Request-Id',
    'Accept',
    'Accept-Version',
    'X-Forwarded-For',
    'Cookie',
    'Authorization',
  ];
  const others = fc.array(fc.tuple(fc.constantFrom(...names, 'Date', 'If-Match', '__proto__'), values), {
    maxLength: 2,
  });
  return fc.tuple(fc.tuple(...declared), others).map(([own, strange]) => [...own.flat(), ...strange]);
}

type Content = Pick<PlannedRequest, 'body' | 'encoding' | 'framing'> & { type: string | undefined };

function contentOf(schema: Schema | undefined): fc.Arbitrary<Content> {
  const nothing = fc.constant({ body: '', type: undefined, encoding: 'utf8', framing: 'length' } as Content);
  const own = schema === undefined ? hostileJson : jsonOf(withShortWaits(schema), OPTIONS);
  const body: fc.Arbitrary<string> = fc.oneof(
    { weight: 140, arbitrary: own },
    { weight: 20, arbitrary: fc.array(fc.tuple(hostileName, hostileJson), { maxLength: 4 }).map(objectText) },
    { weight: 10, arbitrary: brokenJson },
    { weight: 10, arbitrary: hostileText },
    { weight: 10, arbitrary: formOf(schema) },
    { weight: 1, arbitrary: fc.constant('{"x":"{mebibyte}"}') },
  );
  const type = fc.oneof(
    { weight: 12, arbitrary: fc.constant('application/json') },
    { weight: 2, arbitrary: fc.constant('application/x-www-form-urlencoded') },
    fc.constantFrom('text/plain', 'application/merge-patch+json', 'multipart/form-data; boundary=x', '', ';', 'x/y'),
    shortHostileText,
    fc.constant(undefined),
  );
  const encoding = fc.oneof(
    { weight: 14, arbitrary: fc.constant('utf8' as const) },
    fc.constantFrom('latin1' as const, 'utf16le' as const),
  );
  const framing = fc.oneof({ weight: 14, arbitrary: fc.constant('length' as const) }, fc.constantFrom(...FRAMINGS));
  const something: fc.Arbitrary<Content> = fc.record({ body, type, encoding, framing });
  return schema === undefined ? fc.oneof({ weight: 9, arbitrary: nothing }, something) : something;
}

/** Sleeps of tasks are short, so that synchronous routes are answered. */
function withShortWaits(schema: Schema): Schema {
  const { properties = {} } = schema;
  if (properties.sleep === undefined) return schema;
  return { ...schema, properties: { ...properties, sleep: { type: 'integer', minimum: 0, maximum: 1 } } };
}

function formOf(schema: Schema | undefined): fc.Arbitrary<string> {
  const names = Object.keys(schema?.properties ?? {});
  const name = names.length === 0 ? hostileName : fc.oneof(fc.constantFrom(...names), hostileName);
  return fc
    .array(fc.tuple(name, shortHostileText), { maxLength: 5 })
    .map((pairs) => pairs.map(([one, value]) => `${encoded(one)}=${encoded(value)}`).join('&'));
}

/** Alterations of a valid request. */
const trick: fc.Arbitrary<(request: PlannedRequest) => PlannedRequest> = fc.oneof(
  targetTrick(),
  fc
    .constantFrom(
      'GET',
      'PUT',
      'POST',
      'DELETE',
      'HEAD',
      'OPTIONS',
      'TRACE',
      'PATCH',
      'CONNECT',
      'PROPFIND',
      'get',
      'X',
    )
    .map((method) => (request: PlannedRequest) => ({ ...request, method })),
  fc
    .oneof(
      fc.constantFrom<[string, string]>(
        ['Host', 'evil.example'],
        ['Host', '127.0.0.1'],
        ['Host', ''],
        ['Origin', 'http://evil.example'],
        ['Origin', 'null'],
        ['Expect', '100-continue'],
        ['Expect', '200-ok'],
        ['Connection', 'close'],
        ['Connection', 'Upgrade'],
        ['Upgrade', 'h2c'],
        ['Upgrade', 'websocket'],
        ['Transfer-Encoding', 'gzip'],
        ['Transfer-Encoding', 'identity'],
        ['Transfer-Encoding', 'chunked, chunked'],
        ['Content-Length', '-1'],
        ['Content-Length', '99999999999999999999'],
        ['Content-Length', '1, 1'],
        ['Content-Encoding', 'gzip'],
        ['Range', 'bytes=0-0'],
        ['X-HTTP-Method-Override', 'DELETE'],
        ['X-Long', 'x'.repeat(15_000)],
        ['X-Longer', 'x'.repeat(20_000)],
        ['', 'no name'],
        ['bad name', 'x'],
        ['X-Nul', 'a\0b'],
      ),
      fc.tuple(shortHostileText, shortHostileText),
    )
    .map((header) => (request: PlannedRequest) => ({ ...request, headers: [...request.headers, header] })),
  fc.constantFrom(99, 101, 2_000).map((count) => (request: PlannedRequest) => ({
    ...request,
    headers: Array.from({ length: count }, (_, each) => [`X-${each}`, '1'] as [string, string]),
  })),
);

function targetTrick(): fc.Arbitrary<(request: PlannedRequest) => PlannedRequest> {
  const changes: ((target: string) => string)[] = [
    (target) => `/${target}`,
    (target) => `${target}/`,
    (target) => target.replaceAll('/', '//'),
    (target) => `/x/..${target}`,
    (target) => `/%2e%2e${target}`,
    (target) => `/.${target}`,
    (target) => target.replace('/', '/%2f'),
    (target) => target.replace(/[a-z]/, (letter) => `%${letter.charCodeAt(0).toString(16)}`),
    (target) => target.toUpperCase(),
    (target) => `${target};x=y`,
    (target) => `${target}#x`,
    (target) => `${target}%`,
    (target) => `${target}%zz`,
    (target) => `${target}%c0%af`,
    (target) => `${target}%00`,
    (target) => `${target}?`,
    (target) => `${target}${target.includes('?') ? '&' : '?'}${'a&'.repeat(1_500)}`,
    (target) => `${target}?${'x'.repeat(8_200)}`,
    (target) => `http://127.0.0.1${target}`,
    (target) => `http://evil.example:99999${target}`,
    (target) => `//evil.example${target}`,
    (target) => target.slice(1),
    () => '*',
    () => '/',
    () => '',
    () => '?',
    () => '/servers/../../ping',
    () => '/agents/{server}/link',
    () => '/agents/{unknown}/link?x=y',
    () => '/__proto__',
    () => '/servers/__proto__/tasks',
    (target) => `${target}\u00ff`,
    (target) => `${target} x`,
  ];
  return fc.constantFrom(...changes).map((change) => (request) => ({ ...request, target: change(request.target) }));
}

/**
 * Escaped as a correct client does, except for halves of surrogate pairs, which it cannot escape;
 * placeholders stay.
 */
function encoded(text: string): string {
  if (UUIDS.includes(text)) return text;
  return encodeURIComponent(text.toWellFormed());
}

function unquoted(json: string): string {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === 'string' ? value : json;
  } catch {
    return json;
  }
}

/**
 * The kinds of parameters, with the messages of Triton's validator. Each is a zod schema:
 * the contracts consist of these, validation runs them, and the OpenAPI document describes them.
 */

import { z } from 'zod';
import { isDate } from '../../date.ts';
import { isJsonObject } from '../../json/bounded-json.ts';
import { parseWhere } from '../../where.ts';

const ANY_CASE_UUID = /^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$/;
const uuidSchema = { format: 'uuid' } as const;

/**
 * The class name that Triton's CNAPI prints for a value of the wrong kind, e.g. `[object
 * Undefined]`.
 */
const classOf = (value: unknown): string => Object.prototype.toString.call(value);

export function isUuid(value: string): boolean;
export function isUuid(value: unknown): value is string;
export function isUuid(value: unknown): boolean {
  return typeof value === 'string' && ANY_CASE_UUID.test(value);
}

/**
 * An id in a path; lower-cased, so each object has one name. A failure is 409 `Invalid <name>`
 * (`params.ts`).
 */
/** `missing`: what to say where there is none. */
export const uuid = (missing?: string) =>
  z.string(missing).regex(ANY_CASE_UUID, 'value is not a UUID').toLowerCase().meta(uuidSchema);

/** A server's id in a path, or `default` for the defaults of new servers. */
export const uuidOrDefault = () =>
  z
    .union([uuid(), z.literal('default')], 'value is not a UUID')
    .describe('A server, or `default` for the defaults of new ones');

export const text = () => z.string('value was not a string');
export const boundedText = (maximum: number) => text().max(maximum, `value is longer than ${maximum} characters`);
/** Like the former, in bytes of UTF-8. */
export const boundedBytes = (maximum: number) =>
  text()
    .refine((value) => Buffer.byteLength(value) <= maximum, `value is longer than ${maximum} bytes`)
    .meta({ maxLength: maximum });
/**
 * Two rules with separate failures: a value that is not a string may also have outer whitespace.
 */
export const trimmedText = () =>
  z
    .unknown()
    .superRefine((value, context) => {
      if (typeof value !== 'string') context.addIssue('value was not a string');
      if (/^\s|\s$/.test(String(value))) context.addIssue('value contains leading or trailing whitespace');
    })
    .transform((value) => value as string)
    .meta({ type: 'string' });
/** Maximum of members of an object, and of elements of an array; they are not visited. */
const MAX_MEMBERS = 5_000;
export const object = () =>
  listed<Record<string, unknown>>((value) => reasonNotObject(value, MAX_MEMBERS)).meta({
    type: 'object',
    additionalProperties: {},
    maxProperties: MAX_MEMBERS,
  });
export const array = () =>
  listed<unknown[]>((value) => reasonNotArray(value, MAX_MEMBERS)).meta({
    type: 'array',
    items: {},
    maxItems: MAX_MEMBERS,
  });

/** A text, or a value that Triton's shell would convert to a text. */
type Scalar = string | number | boolean;
const isScalar = (value: unknown): value is Scalar =>
  typeof value === 'string' || Number.isFinite(value) || typeof value === 'boolean';
const scalar = { anyOf: [{ type: 'string' }, { type: 'number' }, { type: 'boolean' }] };
export const textArray = (maximum: number) =>
  listed<Scalar[]>(
    (value) =>
      reasonNotArray(value, maximum) ??
      ((value as unknown[]).every(isScalar) ? undefined : 'value was not an array of strings'),
  )
    .meta({ type: 'array', items: scalar, maxItems: maximum })
    .transform((values) => values.map(String));
/** Uuids in lower case, each once. */
export const uuidArray = (maximum: number) =>
  listed<string[]>(
    (value) =>
      reasonNotArray(value, maximum) ??
      ((value as unknown[]).every((one) => isUuid(one)) ? undefined : 'value was not an array of UUIDs'),
  )
    .meta({ type: 'array', items: { type: 'string', ...uuidSchema }, maxItems: maximum })
    .overwrite((values) => [...new Set(values.map((value) => value.toLowerCase()))]);
const MAX_CONDITIONS = 20;
const MAX_CONDITION_CHARS = 500;
/** Conditions on servers (lib/protocol/where.ts), all of which must hold. */
export const serverConditions = () =>
  textArray(MAX_CONDITIONS).refine((values) => reasonNotConditions(values) === undefined, {
    error: ({ input }) => reasonNotConditions(input as string[]) ?? '',
  });
export const textMap = (maximum: number) =>
  listed<Record<string, Scalar>>(
    (value) =>
      reasonNotObject(value, maximum) ??
      (Object.values(value as object).every(isScalar) ? undefined : 'value was not an object of strings'),
  )
    .meta({ type: 'object', additionalProperties: scalar, maxProperties: maximum })
    .transform((values) => Object.fromEntries(Object.entries(values).map(([name, value]) => [name, String(value)])));

/**
 * A value of many parts with one failure. `z.array` and `z.record` make several for each part and
 * visit all of them: 49,000 nulls took half a second of CPU.
 */
function listed<Value>(reasonAgainst: (value: unknown) => string | undefined) {
  return z.custom<Value>((value) => reasonAgainst(value) === undefined, {
    error: ({ input }) => reasonAgainst(input) ?? '',
  });
}

/** An object with these members. One failure names the first of them that is wrong. */
export function members<Shape extends z.ZodRawShape>(schema: z.ZodObject<Shape, z.core.$strict>) {
  const { $schema: _, ...described } = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' });
  return z
    .unknown()
    .transform((value, context) => {
      const { data, error } = schema.safeParse(value);
      if (error === undefined) return data as z.output<typeof schema>;
      const [{ path, message } = { path: [], message: '' }] = error.issues;
      context.addIssue(path.length === 0 ? message : `${path.join('.')}: ${message}`);
      return z.NEVER;
    })
    .meta({ ...described, maxProperties: Object.keys(schema.shape).length });
}

function reasonNotConditions(values: readonly string[]): string | undefined {
  if (values.length === 0) return 'value is empty';
  if (values.some(({ length }) => length > MAX_CONDITION_CHARS))
    return `value has a condition that is longer than ${MAX_CONDITION_CHARS} characters`;
  const wrong = values.find((value) => parseWhere(value) === undefined);
  return wrong === undefined ? undefined : `${JSON.stringify(wrong)} is not NAME=PATTERN, such as hostname=web-*`;
}

function reasonNotArray(value: unknown, maximum: number): string | undefined {
  if (!Array.isArray(value)) return 'value was not an array';
  return value.length > maximum ? `value has more than ${maximum} elements` : undefined;
}

function reasonNotObject(value: unknown, maximum: number): string | undefined {
  if (!isJsonObject(value)) return `value is not an object. (was: ${classOf(value)})`;
  return Object.keys(value).length > maximum ? `value has more than ${maximum} members` : undefined;
}

export const boolean = () => z.boolean('value was not true or false');

/** Numbers, and numeric texts: a query has only texts. */
export const number = () =>
  z
    .union(
      [
        z.number(),
        z
          .string()
          .regex(/^-?\d+(\.\d+)?$/)
          .transform(Number),
      ],
      'value was not a number',
    )
    .refine(Number.isFinite, 'value was not a number');
export const integer = (name: string, minimum: number, maximum: number) =>
  number()
    .refine(Number.isInteger, `Invalid value for param '${name}'`)
    .refine((value) => value >= minimum && value <= maximum, `value is not between ${minimum} and ${maximum}`)
    .meta({ minimum, maximum, multipleOf: 1 });

/** An integer as Triton's lists accept it: of any size, as a number or a text. */
export const plainInteger = (name: string) =>
  z
    .unknown()
    .refine((value) => /^-?(0|[1-9]\d*)$/.test(String(value)), `Invalid value for param '${name}'`)
    .transform(Number)
    .meta({ type: 'integer' });

/** The timeout of a wait that names none, as in Triton's CNAPI; also the maximum. */
export const MAX_WAIT_SECONDS = 3600;
/** A wait's timeout; larger values count as the maximum. */
export const waitSeconds = () =>
  number()
    .refine((value) => Number.isInteger(value) && value >= 0, 'value is not a whole number of seconds, 0 or more')
    .meta({ minimum: 0, multipleOf: 1 })
    .transform((seconds) => Math.min(seconds, MAX_WAIT_SECONDS))
    .optional()
    .describe(`Seconds, at most ${MAX_WAIT_SECONDS}, which is also the default`);

/**
 * Triton's timeout of a task wait: `parseInt` of the text, 3600 if that is 0 or not a
 * number.
 */
export const taskWaitSeconds = () =>
  z
    .unknown()
    .transform((value) => {
      const seconds = Number.parseInt(String(value), 10) || MAX_WAIT_SECONDS;
      return Math.min(Math.max(seconds, 0), MAX_WAIT_SECONDS);
    })
    .optional()
    .meta({ type: 'integer' })
    .describe(`Seconds, at most ${MAX_WAIT_SECONDS}; absent, 0 or no number means ${MAX_WAIT_SECONDS}`);

/** True for everything but false, 0, an absent value, and the texts `false` and `0`. */
export const truthy = () =>
  z
    .unknown()
    .transform((value) => Boolean(value) && !/^(false|0)$/i.test(String(value)))
    .meta({ type: 'boolean' });

/** `true` and `false` as a query has them, in any case. */
export const booleanText = (message = "value was not 'true' or 'false'") =>
  z.union(
    [
      z.boolean(),
      z
        .string()
        .regex(/^(true|false)$/i)
        .transform((value) => value.toLowerCase() === 'true'),
    ],
    message,
  );

const MAX_ELEMENTS = 1000;
/** A comma-separated list whose elements match `element`. */
export const list = (name: string, element: RegExp) =>
  z
    .string('value was not a string')
    .transform((value) => value.split(',', MAX_ELEMENTS + 1))
    .refine((values) => values.length <= MAX_ELEMENTS, {
      error: `param '${name}' has more than ${MAX_ELEMENTS} elements`,
      abort: true,
    })
    .refine((values) => values.every((value) => element.test(value)), `Invalid value for param '${name}'`);

/** Marks a failure that Triton's CNAPI answers with 400, unlike all others. */
export const BAD_REQUEST = { statusCode: 400 } as const;

/** The maximum of rows in a page, as in Triton's CNAPI. */
export const MAX_LIST = 1000;

/** The id of a server in a path. */
export const serverUuid = { server_uuid: uuid() };

/** Postgres has no year 0, and beyond the year 9999 times have another text format. */
const OLDEST_MS = Date.parse('0001-01-01T00:00:00.000Z');
const NEWEST_MS = Date.parse('9999-12-31T23:59:59.999Z');

/** A time without an offset would depend on the time zone of the instance. */
const MOMENT = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d))?$/i;

/** A time with its offset, or a date, which begins at midnight UTC. */
export const timestamp = () =>
  z
    .string('value was not a string')
    .refine(
      (value) =>
        MOMENT.test(value) &&
        isDate(value.slice(0, 10)) &&
        Date.parse(value) >= OLDEST_MS &&
        Date.parse(value) <= NEWEST_MS,
      'value is neither an ISO 8601 time with an offset, such as 2030-01-01T02:30:00Z, nor a date of the years 1 to 9999',
    )
    .transform((value) => new Date(value).toISOString())
    .optional();

/**
 * The kinds of parameters, with the messages that the reference's validator gives. Each is a zod schema: the route
 * tables are made of these, validation runs them, and the OpenAPI document describes them.
 */
import { z } from 'zod';

const UUID = /^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$/;
const uuidSchema = { format: 'uuid' } as const;

/** The class name that the reference prints for a value of the wrong kind, e.g. `[object Undefined]`. */
const classOf = (value: unknown): string => Object.prototype.toString.call(value);

export const isUuid = (value: unknown): value is string => typeof value === 'string' && UUID.test(value);

/** An id in a path; lower-cased, so that one object has one name. Failing it is 409 `Invalid <name>` (`params.ts`). */
export const uuid = () => z.string().regex(UUID, 'value is not a UUID').toLowerCase().meta(uuidSchema);

/** A server's id in a path, or `default` for the defaults of new servers. */
export const uuidOrDefault = () =>
  z
    .union([uuid(), z.literal('default')], 'value is not a UUID')
    .describe('A server, or `default` for the defaults of new ones');

export const text = () => z.string('value was not a string');
export const boundedText = (maximum: number) => text().max(maximum, `value is longer than ${maximum} characters`);
export const trimmedText = () =>
  text().refine((value) => value === value.trim(), 'value contains leading or trailing whitespace');
export const object = () =>
  z.record(z.string(), z.unknown(), { error: (issue) => `value is not an object. (was: ${classOf(issue.input)})` });
export const array = () => z.array(z.unknown(), 'value was not an array');
/** A text, or what the reference's shell would make a text of. */
const scalar = (message: string) => z.union([z.string(), z.number(), z.boolean()], message).transform(String);
export const textArray = () => z.array(scalar('value was not an array of strings'), 'value was not an array');
export const textMap = () =>
  z.record(z.string(), scalar('value was not an object of strings'), {
    error: (issue) => `value is not an object. (was: ${classOf(issue.input)})`,
  });
export const boolean = () => z.boolean('value was not true or false');

/** Numbers, and texts that look like one: a query knows only texts. */
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

/** A wait that names no timeout, as in the reference; also the longest one. */
export const MAX_WAIT_SECONDS = 3600;
/** How long a wait may take; more than the longest counts as the longest. */
export const waitSeconds = () =>
  number()
    .refine((value) => Number.isInteger(value) && value >= 0, 'value is not a whole number of seconds, 0 or more')
    .meta({ minimum: 0, multipleOf: 1 })
    .transform((seconds) => Math.min(seconds, MAX_WAIT_SECONDS))
    .optional()
    .describe(`Seconds; ${MAX_WAIT_SECONDS} when absent, and at most`);

/** `true` and `false` as a query has them, in any case. */
export const booleanText = () =>
  z.union(
    [
      z.boolean(),
      z
        .string()
        .regex(/^(true|false)$/i)
        .transform((value) => value.toLowerCase() === 'true'),
    ],
    "value was not 'true' or 'false'",
  );

/** A comma-separated list whose elements match `element`. */
export const list = (name: string, element: RegExp) =>
  z
    .string('value was not a string')
    .transform((value) => value.split(','))
    .refine((values) => values.length <= 1000, `param '${name}' has more than 1000 elements`)
    .refine((values) => values.every((value) => element.test(value)), `Invalid value for param '${name}'`);

/** Marks a complaint that the reference answers with 400, unlike all others. */
export const BAD_REQUEST = { statusCode: 400 } as const;

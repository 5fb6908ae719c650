/**
 * Generates JSON texts from a JSON schema (of the OpenAPI document, of a frame): mostly valid ones,
 * sometimes with an invalid value. So the code behind the first check is reached, and the check
 * itself is tested.
 */
import fc from 'fast-check';
import { hostileJson, hostileName, hostileNumberText, hostileText, objectText } from './hostile.ts';

export interface Schema {
  type?: string | string[];
  format?: string;
  pattern?: string;
  const?: unknown;
  enum?: unknown[];
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  minimum?: number;
  maximum?: number;
  maxLength?: number;
}

export interface SchemaOptions {
  /** One value in this number does not fit its schema. */
  hostileOneIn: number;
  /** Placeholders where a uuid is expected. */
  uuids: readonly string[];
}

/** JSON texts for `schema`. */
export function jsonOf(schema: Schema, options: SchemaOptions): fc.Arbitrary<string> {
  const { hostileOneIn } = options;
  return fc.oneof(
    { weight: hostileOneIn - 1, arbitrary: validJson(schema, options) },
    { weight: 1, arbitrary: hostileFor(schema) },
  );
}

/**
 * A value of another type, which the first check refuses; more often of the right one, to get as
 * far as possible.
 */
function hostileFor(schema: Schema): fc.Arbitrary<string> {
  const any = fc.oneof(hostileJson, hostileNumberText);
  if (schema.type !== 'string') return any;
  return fc.oneof(
    { weight: 4, arbitrary: hostileText.map((text) => JSON.stringify(text)) },
    { weight: 1, arbitrary: any },
  );
}

function validJson(schema: Schema, options: SchemaOptions): fc.Arbitrary<string> {
  const alternatives = schema.anyOf ?? schema.oneOf;
  if (alternatives !== undefined) return fc.oneof(...alternatives.map((one) => validJson(one, options)));
  if (schema.const !== undefined) return fc.constant(JSON.stringify(schema.const));
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum.map((one) => JSON.stringify(one)));
  switch (Array.isArray(schema.type) ? schema.type[0] : schema.type) {
    case 'object':
      return objectOf(schema, options);
    case 'array':
      return fc.array(jsonOf(schema.items ?? {}, options), { maxLength: 3 }).map((items) => `[${items.join(',')}]`);
    case 'string':
      return textOf(schema, options).map((text) => JSON.stringify(text));
    case 'number':
    case 'integer':
      return numberOf(schema);
    case 'boolean':
      return fc.constantFrom('true', 'false');
    default:
      return hostileJson;
  }
}

function objectOf({ properties = {}, required = [], additionalProperties }: Schema, options: SchemaOptions) {
  const members = Object.entries(properties).map(([name, schema]) => {
    const value = jsonOf(schema, options).map((text) => [[name, text]] as [string, string][]);
    const isUsual = required.includes(name) || schema.const !== undefined;
    return fc.oneof({ weight: isUsual ? 20 : 1, arbitrary: value }, { weight: 1, arbitrary: fc.constant([]) });
  });
  const isOpen = additionalProperties !== false;
  const others = fc.array(fc.tuple(hostileName, hostileJson), { maxLength: isOpen ? 2 : 1 });
  const unknownMembers = fc.oneof(
    { weight: 8, arbitrary: fc.constant([]) },
    { weight: isOpen ? 2 : 1, arbitrary: others },
  );
  return fc
    .tuple(fc.tuple(...members), unknownMembers)
    .map(([own, strange]) => objectText([...own.flat(), ...strange]));
}

/** A text for `schema` in the form of a query or a path, without quotes. */
export function textOf({ format, pattern, maxLength }: Schema, { uuids }: SchemaOptions): fc.Arbitrary<string> {
  const isUuid = format === 'uuid' || pattern?.includes('[0-9a-f') || pattern?.includes('{8}');
  if (isUuid) return fc.oneof({ weight: 6, arbitrary: fc.constantFrom(...uuids) }, fc.uuid());
  return fc.string({ unit: 'grapheme-ascii', minLength: 1, maxLength: Math.min(maxLength ?? 12, 12) });
}

function numberOf({ minimum = -5, maximum = 100_000 }: Schema): fc.Arbitrary<string> {
  const [least, most] = [Math.ceil(minimum), Math.floor(Math.max(minimum, maximum))];
  const inside = fc.integer({ min: Math.max(least, -(2 ** 31)), max: Math.min(most, 2 ** 31 - 1) }).map(String);
  return fc.oneof(inside, fc.constantFrom(String(least), String(most), String(least - 1), String(most + 1)));
}

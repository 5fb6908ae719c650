/**
 * Parses JSON at a bounded cost. One scan over the text counts values and depth before `JSON.parse`
 * allocates anything: a megabyte of `[],[],…` is refused after a few milliseconds, although its
 * size in bytes is allowed. Pure. Used for request bodies and for the frames of agents, each with
 * its own limits. The receiver limits the bytes.
 */
import { MAX_JSON_DEPTH } from './storable.ts';

/** An object as `JSON.parse` returns it. */
export type JsonObject = Record<string, unknown>;

interface JsonLimits {
  /** Maximum number of values: scalars, arrays, objects, and the names of members. */
  maxValues: number;
  /** Maximum nesting of arrays and objects. Default MAX_JSON_DEPTH. */
  maxDepth?: number;
}

/** The text may be well-formed JSON, but it exceeds the reader's limits. */
export class JsonLimitError extends Error {
  readonly code: 'values' | 'depth';

  constructor(code: JsonLimitError['code'], message: string) {
    super(message);
    this.name = 'JsonLimitError';
    this.code = code;
  }
}

/** @throws JsonLimitError; SyntaxError when the text is not JSON */
export function parseBoundedJson(text: string, limits: JsonLimits): unknown {
  countJsonValues(text, limits);
  return JSON.parse(text);
}

/**
 * Counts the values in the text. It does not check that the text is JSON; for other text it returns
 * what it counted up to the end. Allocates nothing, and stops as soon as a limit is exceeded.
 * @throws JsonLimitError
 */
export function countJsonValues(text: string, { maxValues, maxDepth = MAX_JSON_DEPTH }: JsonLimits): number {
  let values = 1;
  let depth = 0;
  let previous = 0;
  for (let at = 0; at < text.length; at += 1) {
    const char = text.charCodeAt(at);
    if (char === QUOTE) {
      at = endOfString(text, at);
    } else if (char === OPEN_ARRAY || char === OPEN_OBJECT) {
      depth += 1;
      values += 1;
      if (depth > maxDepth) throw new JsonLimitError('depth', `is nested more than ${maxDepth} levels deep`);
    } else if (char === CLOSE_ARRAY || char === CLOSE_OBJECT) {
      depth -= 1;
      // The opening bracket was counted as one value more; an empty array or object has no value
      // inside.
      if (previous === OPEN_ARRAY || previous === OPEN_OBJECT) values -= 1;
    } else if (char === COMMA || char === COLON) {
      values += 1;
    } else if (char <= SPACE) {
      continue;
    }
    previous = char;
    if (values > maxValues) throw new JsonLimitError('values', `holds more than ${maxValues} values`);
  }
  return values;
}

/** Whether a result of `JSON.parse` is an object. */
export function isJsonObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Index of the closing quote, or of the last character when there is none. */
function endOfString(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at += 1) {
    const char = text.charCodeAt(at);
    if (char === QUOTE) return at;
    if (char === BACKSLASH) at += 1;
  }
  return text.length;
}

const SPACE = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/**
 * Parses and formats search filters as text (RFC 4515). Pure; a string either parses or throws
 * InvalidQueryError with the position. Extensions: `_` in field names, and Moray's rule
 * caseIgnoreSubstringsMatch, whose value is a pattern. Approximate match and the other extensible
 * matches are refused by name.
 */
import type { Filter } from './filter.ts';
import { InvalidQueryError } from './moray-errors.ts';

export const filterLimits = { length: 65_536, depth: 64, nodes: 4_096 } as const;

interface Reader {
  readonly text: string;
  position: number;
  depth: number;
  nodes: number;
}

/** @throws InvalidQueryError */
export function parseFilter(text: string): Filter {
  if (text.length > filterLimits.length) {
    throw new InvalidQueryError(`the filter is longer than ${filterLimits.length} characters`, {
      position: filterLimits.length,
    });
  }
  const reader: Reader = { text, position: 0, depth: 0, nodes: 0 };
  const filter = readFilter(reader);
  if (reader.position < text.length) throw complaint(reader, 'the end of the filter');
  return filter;
}

/** Text that parses to `filter`, with every value escaped. */
export function formatFilter(filter: Filter): string {
  switch (filter.kind) {
    case 'and':
      return `(&${filter.filters.map(formatFilter).join('')})`;
    case 'or':
      return `(|${filter.filters.map(formatFilter).join('')})`;
    case 'not':
      return `(!${formatFilter(filter.filter)})`;
    case 'present':
      return `(${filter.field}=*)`;
    case 'equal':
      return `(${filter.field}${filter.ignoreCase ? ':caseIgnoreMatch:=' : '='}${escapeValue(filter.value)})`;
    case 'atLeast':
      return `(${filter.field}>=${escapeValue(filter.value)})`;
    case 'atMost':
      return `(${filter.field}<=${escapeValue(filter.value)})`;
    case 'substrings': {
      const pattern = [filter.initial, ...filter.any, filter.final].map(escapeValue).join('*');
      return `(${filter.field}${filter.ignoreCase ? ':caseIgnoreSubstringsMatch:=' : '='}${pattern})`;
    }
    default:
      return filter satisfies never;
  }
}

/** A value with NUL, parentheses, star and backslash escaped (RFC 4515 section 3). */
function escapeValue(value: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: NUL is one of the characters that must be escaped.
  return value.replace(/[\u0000()*\\]/g, (character) => `\\${character.charCodeAt(0).toString(16).padStart(2, '0')}`);
}

function readFilter(reader: Reader): Filter {
  reader.nodes += 1;
  reader.depth += 1;
  if (reader.nodes > filterLimits.nodes) throw excess(reader, `has more than ${filterLimits.nodes} parts`);
  if (reader.depth > filterLimits.depth) throw excess(reader, `is nested more than ${filterLimits.depth} deep`);
  expect(reader, '(');
  const filter = readComponent(reader);
  expect(reader, ')');
  reader.depth -= 1;
  return filter;
}

function readComponent(reader: Reader): Filter {
  switch (reader.text[reader.position]) {
    case '&':
      reader.position += 1;
      return { kind: 'and', filters: readList(reader) };
    case '|':
      reader.position += 1;
      return { kind: 'or', filters: readList(reader) };
    case '!':
      reader.position += 1;
      return { kind: 'not', filter: readFilter(reader) };
    default:
      return readItem(reader);
  }
}

function readList(reader: Reader): Filter[] {
  const filters: Filter[] = [];
  while (reader.text[reader.position] === '(') filters.push(readFilter(reader));
  return filters;
}

function readItem(reader: Reader): Filter {
  const field = readMatch(reader, /[A-Za-z_][A-Za-z0-9_.-]{0,127}/y);
  if (field === undefined) throw complaint(reader, 'a field name');
  const operator = readMatch(reader, /=|>=|<=|~=|:[^=()*\\]{0,64}=/y);
  switch (operator) {
    case '=':
      return fromParts(field, readParts(reader), false);
    case '>=':
      return { kind: 'atLeast', field, value: readValue(reader) };
    case '<=':
      return { kind: 'atMost', field, value: readValue(reader) };
    case ':=':
    case ':caseExactMatch:=':
      return { kind: 'equal', field, value: readValue(reader), ignoreCase: false };
    case ':caseIgnoreMatch:=':
      return { kind: 'equal', field, value: readValue(reader), ignoreCase: true };
    case ':caseIgnoreSubstringsMatch:=':
      return fromParts(field, readParts(reader), true);
    case undefined:
      throw complaint(reader, "one of '=', '>=', '<=', ':caseIgnoreMatch:='");
    default:
      throw new InvalidQueryError(`the match '${operator}' of field ${field} is not supported`, {
        field,
        position: reader.position - operator.length,
      });
  }
}

/** `parts`: the texts between the stars. */
function fromParts(field: string, parts: string[], ignoreCase: boolean): Filter {
  const [initial = '', ...rest] = parts;
  const final = rest.pop();
  if (final === undefined) return { kind: 'equal', field, value: initial, ignoreCase };
  const any = rest.filter((part) => part !== '');
  if (initial === '' && any.length === 0 && final === '') return { kind: 'present', field };
  return { kind: 'substrings', field, initial, any, final, ignoreCase };
}

function readParts(reader: Reader): string[] {
  const parts = [readValue(reader)];
  while (reader.text[reader.position] === '*') {
    reader.position += 1;
    parts.push(readValue(reader));
  }
  return parts;
}

/** Reads up to the next unescaped parenthesis, star or NUL. Escapes are octets of UTF-8. */
function readValue(reader: Reader): string {
  let value = '';
  for (;;) {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: NUL is one of the characters that must be escaped.
    value += readMatch(reader, /[^\u0000()*\\]+/y) ?? '';
    if (reader.text[reader.position] !== '\\') return value;
    value += readEscapes(reader);
  }
}

function readEscapes(reader: Reader): string {
  const start = reader.position;
  const escapes = readMatch(reader, /(?:\\[0-9A-Fa-f]{2})+/y);
  if (escapes === undefined) throw complaint(reader, 'two hexadecimal digits after the backslash');
  try {
    return strictUtf8.decode(Buffer.from(escapes.replaceAll('\\', ''), 'hex'));
  } catch (cause) {
    throw new InvalidQueryError(`the escapes at position ${start} of the filter are not UTF-8`, {
      position: start,
      cause,
    });
  }
}

const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** The text that the sticky `pattern` matches at the position; moves the position behind it. */
function readMatch(reader: Reader, pattern: RegExp): string | undefined {
  pattern.lastIndex = reader.position;
  const found = pattern.exec(reader.text)?.[0];
  reader.position += found?.length ?? 0;
  return found;
}

function expect(reader: Reader, character: '(' | ')'): void {
  if (reader.text[reader.position] !== character) throw complaint(reader, `'${character}'`);
  reader.position += 1;
}

function complaint({ text, position }: Reader, expected: string): InvalidQueryError {
  const found = position < text.length ? `'${text.slice(position, position + 10)}'` : 'its end';
  return new InvalidQueryError(`expected ${expected} at position ${position} of the filter, found ${found}`, {
    position,
  });
}

function excess({ position }: Reader, what: string): InvalidQueryError {
  return new InvalidQueryError(`the filter ${what}`, { position });
}

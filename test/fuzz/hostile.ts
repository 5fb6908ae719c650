/**
 * Hostile values: texts, numbers and whole JSON, most of it as text, so that it includes what
 * JSON.stringify would never write. Shared by all parts.
 */
import fc from 'fast-check';

const NAMES = [
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  'hasOwnProperty',
  'valueOf',
  '__defineGetter__',
  'then',
];

/** Values that are known to have broken some software. */
const TEXTS = [
  ...NAMES,
  '',
  ' ',
  '\0',
  'a\0b',
  '\ud800',
  'x\udfffy',
  '\ufeff',
  '\u202eabc',
  '👩‍👩‍👧‍👦',
  'İ',
  'ß',
  '\r\nX-Injected: 1',
  '../../../etc/passwd',
  '%00',
  '%2e%2e%2f',
  '%',
  "' or 1=1 --",
  '"; drop table cnapi_servers; --',
  '$1',
  '\\',
  '\\u0000',
  '%s%n',
  '_%',
  '{}',
  '[]',
  'null',
  'true',
  'NaN',
  'Infinity',
  '-0',
  '1e400',
  '0x10',
  '1_000',
  '9'.repeat(30),
  '-1',
  '0',
  '1.5',
  '2030-01-01T00:00:00Z',
  '9999-99-99',
  '275760-09-13T00:00:00.001Z',
  '-271821-04-20',
  '0000',
  'default',
  '00000000-0000-0000-0000-000000000000',
  'FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF',
];

const LONG = fc.record({
  piece: fc.constantFrom('x', '\\', '"', 'é', '(', ',', '%41'),
  count: fc.constantFrom(300, 5_000, 70_000),
});

export const hostileText: fc.Arbitrary<string> = fc.oneof(
  { weight: 2, arbitrary: fc.constantFrom('a\0b', 'x\udfffy', '\0') },
  { weight: 6, arbitrary: fc.constantFrom(...TEXTS) },
  { weight: 3, arbitrary: fc.string({ unit: 'grapheme', maxLength: 30 }) },
  { weight: 3, arbitrary: fc.string({ unit: 'binary', maxLength: 30 }) },
  { weight: 1, arbitrary: LONG.map(({ piece, count }) => piece.repeat(Math.ceil(count / piece.length))) },
);

/** Hostile texts that are short enough for a header or a URL. */
export const shortHostileText = hostileText.map((text) => text.slice(0, 200));

export const hostileName = fc.oneof(fc.constantFrom(...NAMES), shortHostileText);

/** Numbers as JSON can write them. */
export const hostileNumberText = fc.oneof(
  fc.constantFrom(
    ...['0', '-0', '-1', '1.5', '1e400', '-1e400', '1E+2', '1e-400', '2147483647', '2147483648', '4294967296'],
    ...[
      '9007199254740991',
      '9007199254740993',
      '9223372036854775808',
      '18446744073709551616',
      '123456789012345678901234567890',
    ],
    ...['0.1', '1.7976931348623157e308', '5e-324', '86400001', '1000', '1001', '65536'],
  ),
  fc.maxSafeInteger().map(String),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map(String),
);

/** Invalid JSON. */
const BROKEN_JSON = [
  '',
  '{',
  '[',
  '"',
  '{"a":',
  '{"a":1,}',
  "{'a':1}",
  'undefined',
  'NaN',
  '01',
  '1.',
  '{"a":1}x',
  '\u0000',
  '[1,]',
  '"\n"',
];

export const brokenJson = fc.oneof(fc.constantFrom(...BROKEN_JSON), fc.string({ unit: 'binary', maxLength: 40 }));

/** Deeper than any real value, up to more than a recursive parser's stack allows. */
export const deepJson = fc
  .record({ depth: fc.constantFrom(10, 65, 1_000, 20_000), open: fc.constantFrom('[', '{"a":') })
  .map(({ depth, open }) => `${open.repeat(depth)}1${(open === '[' ? ']' : '}').repeat(depth)}`);

const scalarJson = fc.oneof(
  fc.constantFrom('null', 'true', 'false'),
  hostileNumberText,
  hostileText.map((text) => JSON.stringify(text)),
  fc.constantFrom('"\\ud800"', '"\\u0000"', '"\\/"'),
);

/** Any JSON, as text: every type, duplicate names, prototype names, depth. */
export const hostileJson: fc.Arbitrary<string> = fc.letrec<{ any: string; nested: string }>((tie) => ({
  any: fc.oneof({ maxDepth: 3 }, { weight: 5, arbitrary: scalarJson }, tie('nested'), {
    weight: 1,
    arbitrary: deepJson,
  }),
  nested: fc.oneof(
    fc.array(tie('any'), { maxLength: 5 }).map((items) => `[${items.join(',')}]`),
    fc.array(fc.tuple(hostileName, tie('any')), { maxLength: 5 }).map(objectText),
  ),
})).any;

/** A JSON object of these names and values, in this order, including duplicates. */
export function objectText(members: readonly (readonly [string, string])[]): string {
  return `{${members.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(',')}}`;
}

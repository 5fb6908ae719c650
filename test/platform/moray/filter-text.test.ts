import assert from 'node:assert/strict';
import fc from 'fast-check';
import t from 'tap';
import { and, eq, eqIgnoringCase, type Filter, ge, le, not, or, present } from '../../../lib/platform/moray/filter.ts';
import { filterLimits, formatFilter, parseFilter } from '../../../lib/platform/moray/filter-text.ts';
import { InvalidQueryError } from '../../../lib/platform/moray/moray-errors.ts';

const substrings = (field: string, initial: string, any: string[], final: string, ignoreCase = false): Filter => {
  return { kind: 'substrings', field, initial, any, final, ignoreCase };
};

t.test('a filter text parses to its meaning', async (t) => {
  const cases: Record<string, Filter> = {
    '(a=b)': eq('a', 'b'),
    '(a=)': eq('a', ''),
    '(_key=x y)': eq('_key', 'x y'),
    '(a=*)': present('a'),
    '(a=**)': present('a'),
    '(a=b*)': substrings('a', 'b', [], ''),
    '(a=*b)': substrings('a', '', [], 'b'),
    '(a=*b*)': substrings('a', '', ['b'], ''),
    '(a=b*c**d*e)': substrings('a', 'b', ['c', 'd'], 'e'),
    '(a>=5)': ge('a', '5'),
    '(a<=5)': le('a', '5'),
    '(a=b=c<d>e&f|g!)': eq('a', 'b=c<d>e&f|g!'),
    '(a:caseIgnoreMatch:=Bc)': eqIgnoringCase('a', 'Bc'),
    '(a:caseExactMatch:=Bc)': eq('a', 'Bc'),
    '(a:=Bc)': eq('a', 'Bc'),
    '(a:caseIgnoreSubstringsMatch:=*Bc*)': substrings('a', '', ['Bc'], '', true),
    '(a=\\28\\29\\2a\\5C\\00)': eq('a', '()*\\\0'),
    '(a=\\c3\\a9t\\C3\\A9)': eq('a', 'été'),
    '(&)': and(),
    '(|)': or(),
    '(&(a=b)(|(c=d)(!(e=*))))': and(eq('a', 'b'), or(eq('c', 'd'), not(present('e')))),
  };
  for (const [text, filter] of Object.entries(cases)) t.same(parseFilter(text), filter, text);
});

t.test('an invalid filter is refused with the position of the error', async (t) => {
  const cases: Record<string, number> = {
    '': 0,
    'a=b': 0,
    '(a=b': 4,
    '(a=b))': 5,
    ' (a=b)': 0,
    '(a=b)(c=d)': 5,
    '(=b)': 1,
    '(a)': 2,
    '(a~=b)': 2,
    '(a:dn:=b)': 2,
    '(!)': 2,
    '(!(a=b)(c=d))': 7,
    '(a=b\\2)': 4,
    '(a=\\ff)': 3,
    '(a>=b*)': 5,
    '(a=b\0c)': 4,
    '((a=b))': 1,
  };
  for (const [text, position] of Object.entries(cases))
    t.throws(() => parseFilter(text), { code: 'InvalidQuery', position }, text);
});

t.test('length, depth and number of parts of a filter are limited', async (t) => {
  const nested = (depth: number) => `${'(!'.repeat(depth - 1)}(a=b)${')'.repeat(depth - 1)}`;
  const wide = (parts: number) => `(|${'(a=b)'.repeat(parts - 1)})`;
  t.doesNotThrow(() => parseFilter(nested(filterLimits.depth)));
  t.throws(() => parseFilter(nested(filterLimits.depth + 1)), { message: /nested more than/ });
  t.doesNotThrow(() => parseFilter(wide(filterLimits.nodes)));
  t.throws(() => parseFilter(wide(filterLimits.nodes + 1)), { message: /more than 4096 parts/ });
  t.throws(() => parseFilter(`(a=${'b'.repeat(filterLimits.length)})`), { message: /longer than/ });
  t.throws(() => parseFilter('('.repeat(filterLimits.length)), InvalidQueryError);
});

const field = fc.stringMatching(/^[A-Za-z_][A-Za-z0-9_]{0,10}$/);
const value = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.string({ unit: fc.constantFrom('(', ')', '*', '\\', '\0', 'a', '&', 'é', '=') }),
);
const part = value.filter((text) => text !== '');
/** fast-check makes some records without a prototype unless told not to. */
const plain = <T>(model: { [K in keyof T]: fc.Arbitrary<T[K]> }) => fc.record(model, { noNullPrototype: true });
const filters = fc.letrec<{ filter: Filter }>((tie) => ({
  filter: fc.oneof(
    { maxDepth: 5, withCrossShrink: true },
    plain({ kind: fc.constant('equal' as const), field, value, ignoreCase: fc.boolean() }),
    plain({ kind: fc.constantFrom('atLeast' as const, 'atMost' as const), field, value }),
    plain({ kind: fc.constant('present' as const), field }),
    plain({
      kind: fc.constant('substrings' as const),
      field,
      initial: value,
      any: fc.array(part),
      final: value,
      ignoreCase: fc.boolean(),
    }).filter(({ initial, any, final }) => initial !== '' || any.length > 0 || final !== ''),
    plain({
      kind: fc.constantFrom('and' as const, 'or' as const),
      filters: fc.array(tie('filter'), { maxLength: 4 }),
    }),
    plain({ kind: fc.constant('not' as const), filter: tie('filter') }),
  ),
})).filter;

t.test('every filter survives being written and read back', async (t) => {
  fc.assert(
    fc.property(filters, (filter) => assert.deepStrictEqual(parseFilter(formatFilter(filter)), filter)),
    { numRuns: 500 },
  );
  t.pass('every generated filter did');
});

t.test('any text is either parsed or refused, quickly', async (t) => {
  const nearly = fc.string({
    unit: fc.constantFrom('(', ')', '*', '\\', '&', '|', '!', '=', '>', '<', ':', '~', 'a', '2', '\0'),
    maxLength: 200,
  });
  const anything = fc.oneof(nearly, fc.string({ unit: 'binary', maxLength: 200 }), filters.map(formatFilter));
  fc.assert(
    fc.property(anything, fc.nat(), fc.string({ maxLength: 2 }), (text, at, inserted) => {
      const damaged = text.slice(0, at % (text.length + 1)) + inserted + text.slice(at % (text.length + 1));
      try {
        parseFilter(damaged);
      } catch (error) {
        if (!(error instanceof InvalidQueryError) || error.position === undefined) throw error;
      }
    }),
    { numRuns: 3_000 },
  );
  t.pass('no other error was thrown');
});

import t, { Test } from 'tap';
import { matchLists } from './match-lists.ts';

const rows: readonly { name: string; found: unknown; pattern: unknown; passes: boolean }[] = [
  { name: 'no item for none', found: [], pattern: [], passes: true },
  { name: 'an item for none', found: [1], pattern: [], passes: false },
  { name: 'one item for two', found: [1], pattern: [1, 2], passes: false },
  { name: 'two items for one', found: [1, 2], pattern: [1], passes: false },
  { name: 'a further field of an item', found: [{ a: 1, b: 2 }], pattern: [{ a: 1 }], passes: true },
  { name: 'a text that the pattern describes', found: ['a name'], pattern: [/name/], passes: true },
  { name: 'two items in a field, for one', found: { list: [1, 2], n: 1 }, pattern: { list: [1] }, passes: false },
  { name: 'two items in an item, for one', found: [{ list: [1, 2] }], pattern: [{ list: [1] }], passes: false },
  { name: 'any list for Array', found: { list: [1, 2] }, pattern: { list: Array }, passes: true },
  { name: 'an object without a list', found: {}, pattern: { list: [] }, passes: false },
  { name: 'an empty object for an empty object', found: { map: {} }, pattern: { map: {} }, passes: true },
  { name: 'an object with a field for an empty one', found: { map: { a: 1 } }, pattern: { map: {} }, passes: false },
  { name: 'an error with its message', found: [new Error('no')], pattern: [{ message: 'no' }], passes: true },
];

for (const { name, found, pattern, passes } of rows)
  t.test(`matchLists ${passes ? 'accepts' : 'refuses'} ${name}`, async (t) => {
    t.equal(matchLists(new Test({}) as typeof t, found, pattern), passes);
  });

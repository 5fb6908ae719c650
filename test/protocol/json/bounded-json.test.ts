import t from 'tap';
import { countJsonValues, type JsonLimitError, parseBoundedJson } from '../../../lib/protocol/json/bounded-json.ts';

const unlimited = { maxValues: Number.POSITIVE_INFINITY };

t.test('scalars, arrays, objects and member names count as values', async (t) => {
  const texts: [text: string, values: number][] = [
    ['1', 1],
    ['"a,b:c[d]{e}"', 1],
    ['"a \\" , [ \\\\"', 1],
    ['[]', 1],
    ['{ \n}', 1],
    ['[[], [ ], {}]', 4],
    ['[1,2,3]', 4],
    ['{"a":1}', 3],
    ['{"a":{"b":[1,null]},"c":"d,e"}', 9],
    [JSON.stringify(Array(1000).fill([])), 1001],
  ];
  for (const [text, values] of texts) t.equal(countJsonValues(text, unlimited), values, text.slice(0, 40));
});

t.test('text within the limits is parsed as JSON.parse does', async (t) => {
  const text = '{"__proto__":{"x":[1,2]},"text":"a\\u0000\\ud800","number":1e999}';
  t.same(parseBoundedJson(text, { maxValues: 11 }), JSON.parse(text));
  t.throws(() => parseBoundedJson('{"a":', { maxValues: 10 }), SyntaxError);
  t.throws(() => parseBoundedJson(']]]]', { maxValues: 10 }), SyntaxError);
});

t.test('one value or one level too many is refused', async (t) => {
  const limits = { maxValues: 10, maxDepth: 3 };
  t.equal(countJsonValues(JSON.stringify(Array(9).fill(0)), limits), 10);
  const tooMany = { name: 'JsonLimitError', code: 'values', message: 'holds more than 10 values' };
  t.throws(() => parseBoundedJson(JSON.stringify(Array(10).fill(0)), limits), tooMany as JsonLimitError);
  t.throws(
    () => parseBoundedJson(JSON.stringify({ a: Array(5).fill([]), b: [[]] }), limits),
    tooMany as JsonLimitError,
  );
  t.equal(countJsonValues('[[[1]]]', limits), 4);
  const tooDeep = { code: 'depth', message: 'is nested more than 3 levels deep' };
  t.throws(() => parseBoundedJson('[[[[1]]]]', limits), tooDeep as JsonLimitError);
  t.throws(
    () => parseBoundedJson('['.repeat(1_000_000), limits),
    tooDeep as JsonLimitError,
    'even when it is not closed',
  );
  t.equal(
    countJsonValues(JSON.stringify(Array(3).fill([[1]])), { maxValues: 10, maxDepth: 3 }),
    10,
    'siblings do not add to the depth',
  );
});

t.test('refusing a megabyte of empty arrays costs less than half of parsing it', async (t) => {
  const text = `[${'[],'.repeat(349_524)}[]]`;
  const refuse = () => parseBoundedJson(text, { maxValues: 50_000 });
  t.throws(refuse);
  const refused = leastOf(20, () => {
    try {
      refuse();
    } catch {}
  });
  const parsed = leastOf(20, () => JSON.parse(text));
  t.ok(refused < parsed / 2, `${refused} µs and ${parsed} µs`);
});

/** CPU time in µs of the best of several runs, because garbage of one is collected in another. */
function leastOf(runs: number, work: () => unknown): number {
  return Math.min(
    ...Array.from({ length: runs }, () => {
      const before = process.cpuUsage();
      work();
      return process.cpuUsage(before).user;
    }),
  );
}

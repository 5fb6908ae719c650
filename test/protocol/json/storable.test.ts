import t from 'tap';
import { MAX_JSON_DEPTH, reasonNotStorable } from '../../../lib/protocol/json/storable.ts';

const nested = (levels: number): unknown => JSON.parse('['.repeat(levels) + ']'.repeat(levels));

t.test('reasonNotStorable finds the values that the database cannot store', async (t) => {
  const text = /NUL character or half of a surrogate pair/;
  const number = /a number that is too large/;
  const depth = /nested more than 64 levels/;
  const rows: [name: string, value: unknown, reason: RegExp | undefined][] = [
    ['scalars', JSON.parse('[1,-0.5,1e308,true,null,"ü😀",""]'), undefined],
    ['names of prototype properties', JSON.parse('{"__proto__":{"constructor":1}}'), undefined],
    ['an object without a prototype', Object.assign(Object.create(null), { a: 1 }), undefined],
    ['the maximum depth', nested(MAX_JSON_DEPTH), undefined],
    ['a NUL', 'a\0b', text],
    ['a NUL deep within', { a: [{ b: ['x', 'a\0b'] }] }, text],
    ['half of a surrogate pair', ['\ud800'], text],
    ['a NUL in a name', { a: { 'b\0': 1 } }, text],
    ['half of a surrogate pair in a later name', { a: 1, b: 2, 'c\udc00': 3 }, text],
    ['a bad name inside __proto__', JSON.parse('{"__proto__":{"a\\u0000":1}}'), text],
    ['a number above the range of a double', JSON.parse('{"a":[0,1e999]}'), number],
    ['a negative one', JSON.parse('-1e999'), number],
    ['one level too deep', nested(MAX_JSON_DEPTH + 1), depth],
    ['deep enough to overflow a stack', nested(200_000), depth],
    ['too deep after many flat values', [...Array(1000).fill({ a: [1] }), { b: nested(100) }], depth],
  ];
  for (const [name, value, reason] of rows) {
    const found = reasonNotStorable(value);
    if (reason === undefined) t.equal(found, undefined, name);
    else t.match(found, reason, name);
  }
});

t.test('the check costs about as much as parsing the same text', async (t) => {
  const text = `[${'[],'.repeat(349_524)}[]]`;
  const value = JSON.parse(text);
  const costs = Array.from({ length: 20 }, () => [
    cpuOf(() => reasonNotStorable(value)),
    cpuOf(() => JSON.parse(text)),
  ]);
  const [walked = 0, parsed = 0] = [0, 1].map((which) => Math.min(...costs.map((cost) => cost[which] ?? 0)));
  // It takes a fifth on an idle machine. The room is for the coarse clock of processor time.
  t.ok(walked < 4 * parsed, `${walked} µs and ${parsed} µs`);
});

function cpuOf(work: () => unknown): number {
  const before = process.cpuUsage();
  work();
  return process.cpuUsage(before).user;
}

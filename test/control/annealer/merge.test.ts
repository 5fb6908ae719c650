import t from 'tap';
import { deepDifference, deepMerge, isSameJson, objectWith, valueAt } from '../../../lib/control/annealer/merge.ts';

t.test('a merge takes objects member by member, and arrays and other values whole', async (t) => {
  t.strictSame(deepMerge(), {});
  t.strictSame(deepMerge({ a: 1 }, { b: 2 }), { a: 1, b: 2 });
  t.strictSame(deepMerge({ a: { x: 1, y: 1 } }, { a: { y: 2 } }), { a: { x: 1, y: 2 } });
  t.strictSame(deepMerge({ a: [1, 2] }, { a: [3] }), { a: [3] });
  t.strictSame(deepMerge({ a: { x: 1 } }, { a: 'text' }, { a: { z: 1 } }), { a: { z: 1 } });
  t.strictSame(deepMerge({ a: { x: 1 } }, { a: null }), { a: null }, 'null is a value');
});

t.test('a merge changes none of its arguments', async (t) => {
  const first = { a: { x: 1 } };
  const merged = deepMerge(first, { a: { y: 2 } });
  t.strictSame(first, { a: { x: 1 } });
  (merged.a as Record<string, unknown>).x = 5;
  t.strictSame(first, { a: { x: 1 } });
});

t.test('a name such as __proto__ is a member like others', async (t) => {
  const hostile = JSON.parse('{"__proto__": {"isAdmin": true}}');
  const merged = deepMerge({ a: 1 }, hostile);
  t.equal(Object.hasOwn(merged, '__proto__'), true);
  t.equal((merged as { isAdmin?: boolean }).isAdmin, undefined);
  t.equal(({} as { isAdmin?: boolean }).isAdmin, undefined);
  t.equal(valueAt({}, '__proto__/toString'), undefined);
  t.equal(valueAt({}, 'toString'), undefined);
  t.strictSame(deepDifference({}, hostile), hostile);
});

t.test('the difference has what is new or has another value, and nothing else (C64)', async (t) => {
  const sent = { port: 80, name: 'a', tls: { cert: 'x', key: 'y' }, list: [1, 2], gone: true };
  t.strictSame(deepDifference(sent, { ...sent }), {});
  t.strictSame(deepDifference(sent, { port: 80, name: 'b' }), { name: 'b' }, 'what was not returned does not count');
  t.strictSame(deepDifference(sent, { tls: { cert: 'x', key: 'z' } }), { tls: { key: 'z' } });
  t.strictSame(deepDifference(sent, { list: [2, 1] }), { list: [2, 1] }, 'the order of an array matters');
  t.strictSame(deepDifference(sent, { tls: 'off' }), { tls: 'off' });
  t.strictSame(deepDifference(sent, { disks: { sda: 1 } }), { disks: { sda: 1 } });
  t.strictSame(deepDifference({}, { nothing: {} }), { nothing: {} }, 'a new empty object is new');
  t.strictSame(deepDifference({ a: {} }, { a: {} }), {});
});

t.test('JSON is the same whatever the order of its members', async (t) => {
  t.equal(isSameJson({ a: 1, b: [{ c: null }] }, { b: [{ c: null }], a: 1 }), true);
  t.equal(isSameJson({ a: 1 }, { a: 1, b: undefined }), false);
  t.equal(isSameJson([], {}), false);
  t.equal(isSameJson([1], [1, 2]), false);
  t.equal(isSameJson({ a: { b: 1 } }, { a: { b: 2 } }), false);
  t.equal(isSameJson({ toString: 1 }, {}), false);
});

t.test('a path leads to a value, and from a value to an object', async (t) => {
  t.equal(valueAt({ db: { port: 5432 } }, 'db/port'), 5432);
  t.equal(valueAt({ db: { port: 5432 } }, 'db/host'), undefined);
  t.equal(valueAt({ db: 5 }, 'db/port'), undefined);
  t.strictSame(objectWith('db/port', 5432), { db: { port: 5432 } });
  t.strictSame(objectWith('port', 1), { port: 1 });
});

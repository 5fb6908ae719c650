import t from 'tap';
import { and, eq, type Filter, startsWith } from '../../../lib/platform/moray/filter.ts';
import { filterCondition, type QueryTarget } from '../../../lib/platform/moray/filter-sql.ts';
import { SqlParameters } from '../../../lib/platform/postgres/sql-text.ts';

const target: QueryTarget = {
  name: 'things',
  fields: new Map([
    ['name', { type: 'string', sql: '"name"' }],
    ['size', { type: 'number', sql: '"size"' }],
    ['setup', { type: 'boolean', sql: '"setup"' }],
    ['made', { type: 'timestamp', sql: '"made"' }],
    ['uuid', { type: 'uuid', sql: '"uuid"' }],
  ]),
};

const uuid = '564D1F6C-5D0F-4A2E-9A6B-0123456789AB';

function sql(filter: Filter): [string, ...unknown[]] {
  const parameters = new SqlParameters();
  return [filterCondition(filter, target, parameters), ...parameters.values];
}

t.test('filters become SQL conditions with parameters', async (t) => {
  const cases: [string, Filter, ...ReturnType<typeof sql>][] = [
    ['equality', eq('name', "o'b"), '"name" = $1::text', "o'b"],
    ['of a number', eq('size', 5), '"size" = $1::numeric', '5'],
    ['of a boolean', eq('setup', 'TRUE'), '"setup" = $1::boolean', true],
    ['of a date', eq('made', '2024-02-29'), '"made" = $1::timestamptz', '2024-02-29T00:00:00Z'],
    ['of a uuid', eq('uuid', uuid), '"uuid" = $1::uuid', uuid.toLowerCase()],
    ['prefix', startsWith('name', '5%_\\'), '"name" like $1::text', '5\\%\\_\\\\%'],
    ['both', and(eq('name', 'a'), eq('setup', true)), '("name" = $1::text and "setup" = $2::boolean)', 'a', true],
    ['everything', and(), 'true'],
  ];
  for (const [name, filter, ...expected] of cases) t.strictSame(sql(filter), expected, name);
});

t.test('an error names all unindexed fields', async (t) => {
  const filter = and(eq('color', 'red'), startsWith('weight', '1'), eq('name', 'a'));
  t.throws(() => sql(filter), {
    code: 'NotIndexed',
    statusCode: 400,
    errors: [{ field: 'color' }, { field: 'weight' }],
  });
});

t.test("a value of the wrong type is refused with its field's name", async (t) => {
  const cases: [string, string][] = [
    ['size', 'big'],
    ['size', ''],
    ['size', 'NaN'],
    ['size', '0x10'],
    ['setup', 'yes'],
    ['made', 'yesterday'],
    ['made', '2023-02-29'],
    ['made', '2024-01-01T00:00:00'],
    ['uuid', '1234'],
    ['name', 'a\0b'],
  ];
  for (const [field, value] of cases)
    t.throws(() => sql(eq(field, value)), { code: 'InvalidQuery', errors: [{ field }] }, `${field}=${value}`);
  t.throws(() => sql(startsWith('size', '1')), { code: 'InvalidQuery', errors: [{ field: 'size' }] });
});

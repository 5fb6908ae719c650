import t from 'tap';
import { combineStatement, SqlParameters } from '../../../lib/platform/postgres/sql-text.ts';

t.test('a statement takes a further write along, whether or not it has parts already', async (t) => {
  const also = (parameters: SqlParameters) => `insert into b values (${parameters.add(2, 'int')})`;
  const of = (text: string) => combineStatement(text, new SqlParameters([1]), also);
  const added = 'with also as (insert into b values ($2::int))';
  t.strictSame(of('delete from a where id = $1'), { text: `${added} delete from a where id = $1`, values: [1, 2] });
  t.equal(of('with c as (select $1) select from c').text, `${added}, c as (select $1) select from c`);
  t.equal(of('with\n  c as (select $1) select from c').text, `${added},   c as (select $1) select from c`);
  t.equal(combineStatement('select $1', new SqlParameters([1]), undefined).text, 'select $1');
});

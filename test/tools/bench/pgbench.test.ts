import t from 'tap';
import { statementsOf, toScript } from '../../../tools/bench/pgbench.ts';
import { taskLifeScript } from '../../../tools/bench/task-life.ts';
import { ticketLifeScript } from '../../../tools/bench/ticket-life.ts';

t.test('toScript writes a statement with its values, or with the given expressions', async (t) => {
  const [statement] = await statementsOf((database) =>
    database.query('select $1::text, $2::uuid[], $3::int, $1, $4', ["it's", ['me', null], 7, true]),
  );
  t.ok(statement);
  const expressions = new Map([['me', 'md5(:n::text)::uuid']]);
  t.equal(
    statement && toScript(statement, expressions),
    "select 'it''s'::text, array[md5(:n::text)::uuid, null]::uuid[], 7::int, 'it''s', true;\n",
  );
});

t.test('a value that pgbench would read as a variable is refused', async (t) => {
  t.throws(() => toScript({ text: 'select $1', values: ['10:45'] }, new Map()), /colon/);
});

t.test("the script of a task's life has the product's own statements", async (t) => {
  const script = await taskLifeScript();
  for (const part of ['insert into cnapi_tasks', 'cnapi_claim_for_sessions(', 'cnapi_record_task_reports('])
    t.equal(script.split(part).length, 2, part);
  t.notMatch(script, /\$\d/);
});

t.test("the script of a ticket's life has the product's own statements", async (t) => {
  const script = await ticketLifeScript({ queues: 20, depth: 1 });
  for (const part of ['cnapi_add_ticket(', 'cnapi_release_ticket(']) t.equal(script.split(part).length, 2, part);
  t.match(script, /\\gset\n\\if :is_deep\n/);
});

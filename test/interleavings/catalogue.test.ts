/**
 * The table of statements is complete, and its statements that are declared read-only are
 * read-only.
 */
import t from 'tap';
import { createDuties } from '../support/create-duties.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { findFunctions, findModules, findStatements, noStatements, otherModules } from './catalogue.ts';
import { worldOf } from './interleaving.ts';
import { Lane } from './lane.ts';
import { statements } from './statements.ts';
import { WORLD_NAMES } from './worlds.ts';

t.setTimeout(FILE_TIMEOUT_MS);

/** Functions of buckets and their indexes; no statement of the table is about documents. */
const OF_DOCUMENTS = ['cnapi_now', 'cnapi_parse_timestamp', 'cnapi_group_members'];

const OF_UR = ['cnapi_record_ur_messages', 'cnapi_record_ur_silences'];

t.test('each function that a store exports has a row, and each row names such a function', async (t) => {
  const exported = await findStatements();
  const rows = new Set(statements.map(({ run }) => run));
  for (const { module, name, value } of exported) {
    t.ok(
      rows.has(value),
      `${module} exports ${name}: add a row for it to the table (test/interleavings/*-statements.ts), as writes(${name}, …) ` +
        `or reads(${name}, …); if it is not a statement, name it in catalogue.ts with the reason`,
    );
  }
  // The product's database functions create duties together with their objects.
  const values = new Set([createDuties, ...exported.map(({ value }) => value)]);
  for (const { name, run } of statements)
    t.ok(values.has(run), `the row of ${name} names a function that a store exports`);
  t.equal(new Set(statements.map(({ name }) => name)).size, statements.length, 'no two rows have the same name');
});

t.test('the modules and functions that are left out exist', async (t) => {
  const modules = findModules();
  for (const module of Object.keys(otherModules)) t.ok(modules.includes(module), `${module} still queries a database`);
  const functions = (await findFunctions()).map(({ name }) => name);
  for (const name of Object.keys(noStatements)) t.ok(functions.includes(name), `a store still exports ${name}`);
});

t.test('statements of the table in a database', async (t) => {
  const lane = await Lane.open(t);

  await t.test('each statement that is declared read-only runs in a read-only transaction', async (t) => {
    for (const name of WORLD_NAMES) {
      await lane.reset(name, []);
      for (const call of statements.filter(({ isReadOnly }) => isReadOnly).flatMap(({ calls }) => calls)) {
        const prepared = call.prepare(worldOf(lane, name));
        if (prepared === undefined) continue;
        await lane.two.transaction(async (connection) => {
          await connection.query('set transaction read only');
          await prepared.run(connection).catch((error: unknown) => t.fail(`${name}: ${call.name}`, { error }));
        });
      }
    }
  });

  await t.test('each function of the database is called by a statement or by another called function', async (t) => {
    const asked = await allTexts(lane);
    const { rows } = await lane.admin.query<{ name: string; text: string; is_trigger: boolean }>(
      `select proname as name, prosrc as text, prorettype = 'trigger'::regtype as is_trigger
       from pg_proc join pg_namespace n on n.oid = pronamespace where nspname = 'public' and proname like 'cnapi\\_%'`,
    );
    const isCalled = (name: string, within: string): boolean => new RegExp(`\\b${name}\\(`).test(within);
    for (const { name, is_trigger } of rows) {
      if (is_trigger || [...OF_DOCUMENTS, ...OF_UR].includes(name)) continue;
      const callers = rows.filter((other) => other.name !== name && isCalled(name, other.text));
      t.ok(isCalled(name, asked) || callers.length > 0, `${name}: a function that no statement of a store calls`);
    }
  });
});

/** The texts of all statements, as they reach the database. */
async function allTexts(lane: Lane): Promise<string> {
  const texts: string[] = [];
  lane.rewrite = (text) => {
    texts.push(text);
    return text;
  };
  for (const name of WORLD_NAMES) {
    for (const call of statements.flatMap(({ calls }) => calls)) {
      await lane.reset(name, []);
      await call.prepare(worldOf(lane, name))?.run(lane.two);
    }
  }
  lane.rewrite = (text) => text;
  return texts.join('\n');
}

/** Claims and ends of runs, in SQL. */
import t from 'tap';
import { proposeNoderole } from '../../../lib/control/annealer/noderole-store.ts';
import { runBehindLock } from '../../support/lock-waits.ts';
import { graphInDatabase, idOf } from './graphs.ts';

t.test('one run for each server, also of a noderole that was proposed again during it (C32)', async (t) => {
  const { database, holder, states, claim } = await graphInDatabase(t, { 'a@s': [], 'b@s': [], 'c@t': [] });
  const first = await claim();
  t.equal(first.length, 2);
  t.same(await claim(), []);
  const onS = first.find((name) => name !== 'c@t') ?? '';
  await proposeNoderole(database, idOf(onS));
  t.same(await claim(), [], 'its server still works on it');
  await holder.succeed(onS);
  t.equal((await states())[onS], 'proposed', 'the late end changes nothing');
  t.equal((await claim()).length, 1);
});

t.test('no more runs than the cap, the lowest cohort and id first (C33, C34)', async (t) => {
  const { holder, claim } = await graphInDatabase(t, { late: ['first'], first: [], x: [], y: [], z: [] });
  const byId = ['first', 'x', 'y', 'z'].toSorted((one, other) => (idOf(one) < idOf(other) ? -1 : 1));
  t.same((await claim({ cap: 3 })).toSorted(), byId.slice(0, 3).toSorted());
  t.same(await claim({ cap: 3 }), []);
  await holder.succeed(byId[0] ?? '');
  t.equal((await claim({ cap: 3 })).length, 1);
});

t.test('two claims of one holder at the same time keep to the cap (C33)', async (t) => {
  const { claim, url } = await graphInDatabase(t, { a: [], b: [], c: [], d: [] });
  // Whoever has counted the open runs waits before it adds its own.
  const [one, other] = await runBehindLock<[string[], string[]]>(url, 'lock table cnapi_noderole_runs in share mode', [
    { name: 'a claim', run: () => claim({ cap: 2 }) },
    { name: 'its repetition', run: () => claim({ cap: 2 }) },
  ]);
  t.same([one.length, other.length], [2, 0]);
});

t.test('nothing runs on a server that does not run, nor with a jig that is not active (C31)', async (t) => {
  const { database, holder, claim } = await graphInDatabase(t, { a: [] });
  t.same(await holder.claim(['other']), [], 'its role is not among those that can run');
  await database.query(`update cnapi_roster_authority set status = 'unknown'`);
  t.same(await claim(), []);
  await database.query(`update cnapi_roster_authority set status = 'running'`);
  t.same(await claim(), ['a']);
});

t.test('a former holder neither claims nor ends anything (C40)', async (t) => {
  const { database, holder, states, claim } = await graphInDatabase(t, { a: [] });
  await claim();
  await database.query('update cnapi_duties set generation = generation + 1');
  await t.rejects(holder.succeed('a'), { name: 'DutyLostError' });
  await t.rejects(holder.claim(['a']), { name: 'DutyLostError' });
  t.same(await states(), { a: 'transition' });
});

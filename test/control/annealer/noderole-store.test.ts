import { randomUUID } from 'node:crypto';
import t from 'tap';
import {
  bindNoderoles,
  commitDeployment,
  countNoderoles,
  deleteNoderole,
  listNoderoles,
  proposeNoderole,
  proposeNoderoleData,
  readGraph,
  readNoderole,
  retryNoderole,
} from '../../../lib/control/annealer/noderole-store.ts';
import { readOpenRuns, readRunData } from '../../../lib/control/annealer/run-store.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { runBehindLock } from '../../support/lock-waits.ts';
import { matchLists } from '../../support/match-lists.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { bindGraph, committedGraph, DEPLOYMENT, graphInDatabase, idOf, serverOf, statesOf } from './graphs.ts';

t.test('a noderole is proposed and does not run before its commit (C13)', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const holder = await committedGraph(database, {});
  await bindGraph(database, { a: [] });
  t.same(await statesOf(database, 'a'), { a: 'proposed' });
  t.same(await holder.claim(['a']), []);
});

t.test('a commit makes due what has no parents, and blocks the others (C15, C16)', async (t) => {
  const { states } = await graphInDatabase(t, { a: [], b: ['a'], c: ['b'] });
  t.same(await states(), { a: 'todo', b: 'blocked', c: 'blocked' });
});

t.test('a noderole is due exactly when its last parent becomes active (C17, C18)', async (t) => {
  const { holder, states, claim } = await graphInDatabase(t, { a: [], b: [], child: ['a', 'b'] });
  t.same((await claim()).toSorted(), ['a', 'b']);
  await holder.succeed('a');
  t.same(await states(), { a: 'active', b: 'transition', child: 'blocked' });
  await holder.succeed('b');
  t.same(await states(), { a: 'active', b: 'active', child: 'todo' });
});

t.test('of two parents that become active in one statement, both count', async (t) => {
  const { holder, states, claim } = await graphInDatabase(t, { a: [], b: [], child: ['a', 'b'] });
  await claim();
  await holder.succeed('a', 'b');
  t.equal((await states()).child, 'todo');
});

t.test('a success counts a run, and a failure keeps its reason (C19, C20)', async (t) => {
  const { database, holder, claim } = await graphInDatabase(t, { a: [], b: [] });
  await claim();
  await holder.end([{ runId: holder.runOf('a'), outcome: 'succeeded', wall: { ip: '::1' } }]);
  await holder.fail('b');
  t.match(await readNoderole(database, idOf('a')), { state: 'active', run_count: 1, wall: { ip: '::1' }, error: null });
  t.match(await readNoderole(database, idOf('b')), { state: 'error', run_count: 0, error: { message: 'it broke' } });
});

t.test(
  'a failure blocks all descendants but those that are proposed or run, and names itself (C21, C29)',
  async (t) => {
    const { database, holder, states, claim, anneal } = await graphInDatabase(t, {
      a: [],
      b: ['a'],
      c: ['b'],
      d: ['a', 'c'],
    });
    await anneal();
    await bindGraph(database, { p: [] }).then(() =>
      database.query('insert into cnapi_noderole_edges values ($1, $2, false)', [idOf('a'), idOf('p')]),
    );
    await proposeNoderoleData(database, [idOf('a')], { v: 1 });
    await proposeNoderoleData(database, [idOf('d')], { v: 1 });
    await commitDeploymentOnly(['a', 'd']);
    t.same(await claim(), ['a']);
    await holder.fail('a');
    t.same(await states('a', 'b', 'c', 'd'), { a: 'error', b: 'blocked', c: 'blocked', d: 'blocked' });
    t.same(await statesOf(database, 'p'), { p: 'proposed' });
    const { rows } = await database.query<{ blocked_by: string }>(
      `select distinct blocked_by from cnapi_noderoles where state = 'blocked'`,
    );
    t.same(rows, [{ blocked_by: idOf('a') }], 'each blocked one names the one in error, however far it is');

    /** Commits these and leaves the others proposed. */
    async function commitDeploymentOnly(names: string[]) {
      await database.query(`select cnapi_step_noderoles($1::uuid[], array(select 'commit' from unnest($1::uuid[])))`, [
        names.map(idOf),
      ]);
    }
  },
);

t.test(
  'what is blocked by an error becomes what waits when the error is tried again, and is released by a success (C22, C26)',
  async (t) => {
    const { database, holder, states, claim, anneal } = await graphInDatabase(t, { a: [], b: ['a'], c: ['b'] });
    await claim();
    await holder.fail('a');
    t.match(await readNoderole(database, idOf('c')), { state: 'blocked', blocked_by: idOf('a') });
    t.same(await retryNoderole(database, idOf('a')), { isDone: true });
    t.match(await readNoderole(database, idOf('c')), { state: 'blocked', blocked_by: null });
    await anneal();
    t.same(await states(), { a: 'active', b: 'active', c: 'active' });
  },
);

t.test('a retry of what is not in error is refused, and changes nothing (C23)', async (t) => {
  const { database, holder, states, claim } = await graphInDatabase(t, { a: [], b: ['a'] });
  t.same(await retryNoderole(database, idOf('a')), { isDone: false, state: 'todo', blockedBy: null });
  await claim();
  await holder.fail('a');
  t.same(await retryNoderole(database, idOf('b')), { isDone: false, state: 'blocked', blockedBy: idOf('a') });
  t.same(await states(), { a: 'error', b: 'blocked' });
  t.equal(await retryNoderole(database, randomUUID()), undefined);
});

t.test('an active noderole whose parent runs again stays active; one with new data waits (C25)', async (t) => {
  const { database, holder, states, claim, anneal } = await graphInDatabase(t, { a: [], b: ['a'], c: ['a'] });
  await anneal();
  await proposeNoderoleData(database, [idOf('a')], { v: 1 });
  await proposeNoderoleData(database, [idOf('c')], { v: 1 });
  t.same(await commitDeployment(database, DEPLOYMENT, undefined), { committed: 2, due: 1 });
  t.same(await states(), { a: 'todo', b: 'active', c: 'blocked' });
  t.same(await claim(), ['a']);
  await holder.succeed('a');
  t.same(await states(), { a: 'active', b: 'active', c: 'todo' });
});

t.test('a commit without a change touches nothing', async (t) => {
  const { database, states, anneal } = await graphInDatabase(t, { a: [], b: ['a'] });
  await anneal();
  await proposeNoderoleData(database, [idOf('a')], {});
  t.same(await commitDeployment(database, DEPLOYMENT, undefined), { committed: 0, due: 0 });
  t.same(await states(), { a: 'active', b: 'active' });
});

t.test('a run on data that was changed meanwhile is repeated', async (t) => {
  const { database, holder, states, claim } = await graphInDatabase(t, { a: [], b: ['a'] });
  await claim();
  await proposeNoderoleData(database, [idOf('a')], { v: 2 });
  await commitDeployment(database, DEPLOYMENT, undefined);
  t.same(await states(), { a: 'transition', b: 'blocked' });
  await holder.succeed('a');
  t.same(await states(), { a: 'todo', b: 'blocked' });
  await claim();
  await holder.succeed('a');
  t.same(await states(), { a: 'active', b: 'todo' });
});

t.test('a parent that fails during the run of its child blocks it when that succeeds', async (t) => {
  const { database, holder, states, claim, anneal } = await graphInDatabase(t, { a: [], b: ['a'], c: ['b'] });
  await anneal();
  for (const name of ['a', 'b']) await proposeNoderoleData(database, [idOf(name)], { v: name });
  await commitDeployment(database, DEPLOYMENT, undefined);
  await claim();
  await holder.succeed('a');
  t.same(await claim(), ['b']);
  await proposeNoderoleData(database, [idOf('a')], { v: 'again' });
  await commitDeployment(database, DEPLOYMENT, undefined);
  t.same(await claim(), ['a']);
  await holder.fail('a');
  t.same(await states(), { a: 'error', b: 'transition', c: 'active' });
  await holder.succeed('b');
  t.same(await states(), { a: 'error', b: 'blocked', c: 'blocked' });
});

t.test('while tries are left a failure makes it due again, later; afterwards it is in error (C69, C74)', async (t) => {
  const { database, holder, states, claim } = await graphInDatabase(t, { a: [], b: ['a'] });
  for (const state of ['todo', 'todo', 'error'] as const) {
    t.same(await claim({ maxFailures: 3 }), ['a'], state);
    await holder.fail('a');
    t.same(await states(), { a: state, b: 'blocked' });
    await database.query('update cnapi_noderoles set due_tick = 0');
  }
  await retryNoderole(database, idOf('a'));
  t.same(await claim({ maxFailures: null, retryTicks: 100 }), ['a']);
  await holder.fail('a');
  t.match(await readNoderole(database, idOf('a')), { state: 'todo', failures: 1, pause_ticks: 100 });
  t.same(await claim(), [], 'not before its pause is over');
});

t.test('one that fails again and again waits longer each time, and others go first', async (t) => {
  const { database, holder, claim } = await graphInDatabase(t, { 'a@s': [], 'b@s': [], 'c@t': [] });
  await database.query(`update cnapi_noderoles set failures = 3, cohort = 0 where id = $1`, [idOf('a@s')]);
  const first = await claim({ cap: 2, maxFailures: null });
  t.same(first.toSorted(), ['b@s', 'c@t'], 'the first tries before a retry');
  await holder.succeed(...first);
  t.same(await claim({ maxFailures: null }), ['a@s']);
  await holder.fail('a@s');
  t.match(await readNoderole(database, idOf('a@s')), { state: 'todo', failures: 4, pause_ticks: 7 });
  const { rows } = await database.query<{ pause: string }>(
    'select cnapi_retry_pause(n)::int as pause from generate_series(1, 9) n',
  );
  t.same(
    rows.map(({ pause }) => pause),
    [0, 1, 3, 7, 15, 31, 60, 60, 60],
  );
});

t.test('a run that did not begin does not count, and one that was cancelled is final', async (t) => {
  const { database, holder, states, claim } = await graphInDatabase(t, { a: [] });
  const error = { code: 'AgentPaused', message: 'paused' };
  await claim();
  await holder.end([{ runId: holder.runOf('a'), outcome: 'refused', error }]);
  t.match(await readNoderole(database, idOf('a')), { state: 'todo', failures: 0, pause_ticks: 10, error });
  await database.query('update cnapi_noderoles set due_tick = 0');
  await claim({ maxFailures: null });
  await holder.end([{ runId: holder.runOf('a'), outcome: 'final', error }]);
  t.same(await states(), { a: 'error' });
});

t.test('data that is committed during a run that fails is tried', async (t) => {
  const { database, holder, states, claim } = await graphInDatabase(t, { a: [] });
  await claim();
  await proposeNoderoleData(database, [idOf('a')], { fixed: true });
  await commitDeployment(database, DEPLOYMENT, undefined);
  await holder.fail('a');
  t.match(await readNoderole(database, idOf('a')), { state: 'todo', failures: 0, pause_ticks: 0 });
  t.same(await claim(), ['a']);
  await holder.succeed('a');
  t.same(await states(), { a: 'active' });
});

t.test('a success of a run that its noderole has abandoned is known, and its inputs are deleted', async (t) => {
  const { database, holder, claim } = await graphInDatabase(t, { a: [] });
  await claim();
  await database.query(`update cnapi_noderole_runs set inputs = '{"password": "x"}'`);
  await proposeNoderole(database, idOf('a'));
  await commitDeployment(database, DEPLOYMENT, undefined);
  await holder.succeed('a');
  await claim();
  matchLists(t, await readOpenRuns(database), [{ noderoleId: idOf('a'), hasSucceeded: true, isAbandoned: false }]);
  const { rows } = await database.query('select 1 from cnapi_noderole_runs where inputs is not null');
  t.equal(rows.length, 0);
});

t.test('the data of a run begins with its own, however many ancestors there are', async (t) => {
  const parents = Array.from({ length: 30 }, (_, index) => `p${index}`);
  const shape = { ...Object.fromEntries(parents.map((name) => [name, []])), child: parents };
  const { database } = await graphInDatabase(t, shape);
  const rows = await readRunData(database, idOf('child'));
  t.equal(rows.length, 31);
  t.match(rows[0], { role: 'child', distance: 0, isSameServer: true });
  t.match(rows[30], { distance: 1, isSameServer: false });
});

t.test('a later child is told of its parent although an earlier one is deleted at that moment', async (t) => {
  const { database, holder, states, claim, url } = await graphInDatabase(t, {
    p: [],
    z: [],
    z2: ['z'],
    x: ['p'],
    y: ['p', 'z2'],
  });
  await claim();
  await holder.succeed('z');
  await claim();
  await holder.succeed('z2');
  const [outcome] = await runBehindLock<[string | undefined, unknown]>(url, lockOf('x'), [
    { name: 'the deletion', run: () => deleteNoderole(database, idOf('x')) },
    { name: 'the end of the run of the parent', run: () => holder.succeed('p') },
  ]);
  t.equal(outcome, 'deleted');
  t.same(await states('p', 'z2', 'y'), { p: 'active', z2: 'active', y: 'todo' });
});

t.test('a run that ends while a binding moves its noderole to a later cohort ends it', async (t) => {
  const { database, holder, states, claim, url } = await graphInDatabase(t, {
    x: [],
    w: ['x'],
    late: [],
    later: ['late'],
  });
  await claim();
  const { version } = await readGraph(database, { deploymentIds: [], servers: [], roles: { whole: [], single: [] } });
  const member = { id: idOf('m'), role: 'm', serverUuid: serverOf('m'), deploymentId: DEPLOYMENT, cohort: 2 };
  const edges = [
    { parentId: idOf('later'), childId: idOf('m'), isOrderOnly: false },
    { parentId: idOf('m'), childId: idOf('x'), isOrderOnly: false },
  ];
  // The binding has moved x when it waits for w.
  const [isBound] = await runBehindLock<[boolean, unknown]>(url, lockOf('w'), [
    { name: 'the binding', run: () => bindNoderoles(database, version, { noderoles: [member], edges }) },
    { name: 'the end of its run', run: () => holder.succeed('x') },
  ]);
  t.equal(isBound, true);
  t.same(await states('x'), { x: 'active' });
});

const lockOf = (name: string) => `select 1 from cnapi_noderoles where id = '${idOf(name)}' for update`;

t.test('a plan for an older graph is refused as a whole (C3)', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const { version } = await readGraph(database, {
    deploymentIds: [DEPLOYMENT],
    servers: [],
    roles: { whole: [], single: [] },
  });
  const plan = {
    noderoles: [{ id: randomUUID(), role: 'a', serverUuid: serverOf('a'), deploymentId: DEPLOYMENT, cohort: 0 }],
    edges: [],
  };
  await bindGraph(database, { a: [] });
  t.equal(await bindNoderoles(database, version, plan), false);
  const read = await readGraph(database, {
    deploymentIds: [],
    servers: [serverOf('a')],
    roles: { whole: [], single: [] },
  });
  matchLists(t, read.bound, [{ role: 'a', serverUuid: serverOf('a'), cohort: 0 }]);
});

t.test('a new parent of a later cohort moves its children and their children on (C9)', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  await bindGraph(database, { a: [], b: ['a'], c: ['b'], deep1: [], deep2: ['deep1'], deep3: ['deep2'] });
  const { version } = await readGraph(database, { deploymentIds: [], servers: [], roles: { whole: [], single: [] } });
  const member = { id: idOf('m'), role: 'm', serverUuid: serverOf('m'), deploymentId: DEPLOYMENT, cohort: 3 };
  const edge = (parent: string, child: string) => ({
    parentId: idOf(parent),
    childId: idOf(child),
    isOrderOnly: false,
  });
  const edges = [edge('deep3', 'm'), edge('m', 'b')];
  t.equal(await bindNoderoles(database, version, { noderoles: [member], edges }), true);
  const rows = await listNoderoles(database, {}, 100);
  const cohorts = new Map(rows.map(({ role, cohort }) => [role, cohort]));
  t.same([cohorts.get('m'), cohorts.get('b'), cohorts.get('c')], [3, 4, 5]);
});

t.test('lists are in the order of runs, filtered, page by page', async (t) => {
  const { database } = await graphInDatabase(t, { a: [], b: ['a'], c: ['b'] });
  const [first, second] = await listNoderoles(database, {}, 2);
  t.same([first?.role, second?.role], ['a', 'b']);
  const after = { cohort: second?.cohort ?? 0, id: second?.id ?? '' };
  matchLists(t, await listNoderoles(database, { after }, 2), [{ role: 'c' }]);
  matchLists(t, await listNoderoles(database, { state: 'todo' }, 9), [{ role: 'a', deployment_id: DEPLOYMENT }]);
  matchLists(t, await listNoderoles(database, { role: 'b', serverUuid: serverOf('b') }, 9), [{ role: 'b' }]);
  t.same(await listNoderoles(database, { deploymentId: randomUUID() }, 9), []);
  t.same(await countNoderoles(database), { todo: 1, blocked: 2 });
  const whole = await readNoderole(database, idOf('b'));
  matchLists(t, whole, { parents: [{ role: 'a', state: 'todo' }], children: [{ role: 'c', state: 'blocked' }] });
  t.equal(await readNoderole(database, randomUUID()), undefined);
});

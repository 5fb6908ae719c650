/** Roles on servers, with real instances and real agents on simulated machines. */
import t, { type Test } from 'tap';
import type { Noderole, NoderoleAnswer, NoderoleState } from '../../../lib/protocol/api/annealer.ts';
import type { Task } from '../../../lib/protocol/api/tasks.ts';
import { freshZone, type TestApp } from '../../support/apps.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { startAgents } from '../../support/simulated-agents.ts';
import { until } from '../../support/until.ts';

t.setTimeout(FILE_TIMEOUT_MS);

const MISSING = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';

interface Bound {
  noderoles: Noderole[];
  created: number;
}

async function zoneWith(t: Test, servers: number, config: Record<string, unknown> = {}) {
  const zone = await freshZone(t);
  const [one, two] = [await zone.startApp(config), await zone.startApp(config)];
  const agents = servers === 0 ? [] : await startAgents(t, [one, two], servers);
  const create = async (path: string, fields: object) => {
    const answer = await one.post<{ uuid: string; message?: string }>(path, fields);
    t.equal(answer.status, 201, `${path} ${answer.body.message ?? ''}`);
    return answer.body.uuid;
  };
  const shop = await create('/deployments', { name: 'shop' });
  return {
    ...{ one, two, shop, create, zone },
    uuids: agents.map(({ serverUuid }) => serverUuid),
    role: (name: string, fields: object = {}) => create('/roles', { name, jig: 'script', script: 'echo', ...fields }),
    async bind(role: string, uuids: string[], more: object = {}): Promise<Bound> {
      const answer = await two.post<Bound & { message: string }>(`/deployments/${shop}/noderoles`, {
        ...{ role, servers: uuids, ...more },
      });
      t.equal(answer.status, 200, answer.body.message);
      return answer.body;
    },
    commit: (app: TestApp = one) => app.post<{ committed: number; due: number }>(`/deployments/${shop}/commit`),
  };
}

const get = async (app: TestApp, uuid: string) => (await app.get<NoderoleAnswer>(`/noderoles/${uuid}`)).body;

const inState = (app: TestApp, uuid: string, state: NoderoleState) =>
  until(async () => {
    const noderole = await get(app, uuid);
    return noderole.state === state ? noderole : undefined;
  }, `noderole ${uuid} to be ${state}`);

t.test(
  'roles are carried out on their servers in the order of the graph, with the data of their parents',
  async (t) => {
    const { one, two, uuids, role, bind, commit } = await zoneWith(t, 2);
    await role('base', { script: `echo '{"wall":{"ip":"::1"}}'`, flags: ['implicit'] });
    await role('web', {
      script: `echo '{"wall":{"seen":'$NODEROLE_INPUTS'}}'`,
      ...{ requires: ['base'], template: { port: 80, tls: { on: true } } },
    });
    const { noderoles, created } = await bind('web', uuids, { data: { port: 8080 } });
    t.equal(created, 4, 'the required role is bound to each server, too');
    t.same(
      noderoles.map(({ server_uuid, state, cohort }) => ({ server_uuid, state, cohort })),
      uuids.map((server_uuid) => ({ server_uuid, state: 'proposed', cohort: 1 })),
    );
    t.same((await commit()).body, { committed: 4, due: 2 });
    for (const { uuid } of noderoles) {
      const web = await inState(two, uuid, 'active');
      t.match(web, { run_count: 1, explanation: 'active', data: { port: 8080 } });
      t.same(web.wall.seen, { port: 8080, tls: { on: true }, ip: '::1' });
      const [base] = web.parents;
      t.match(base, { role: 'base', server_uuid: web.server_uuid, state: 'active' });
    }
    t.same((await commit(two)).body, { committed: 0, due: 0 }, 'nothing is run again without a change');
    const { body: tasks } = await one.get<{ tasks: Task[] }>('/tasks');
    t.equal(tasks.tasks.length, 4, 'one task for each run');
  },
);

t.test('a failure blocks what is below it, is explained, and is tried again', async (t) => {
  const { one, two, uuids, role, bind, commit } = await zoneWith(t, 1);
  const base = await role('base', { script: 'exit 3', retry: 1 });
  await role('web', { requires: ['base'] });
  const [web = { uuid: '' }] = (await bind('web', uuids)).noderoles;
  await commit();
  const { parents, explanation } = await until(async () => {
    const found = await get(two, web.uuid);
    return found.blocked_by === undefined ? undefined : found;
  }, 'the failure to block the child');
  const [parent = { uuid: '' }] = parents;
  t.match(explanation, new RegExp(`blocked by noderole ${parent.uuid}, which is in error`));
  t.match(await get(one, parent.uuid), {
    ...{ state: 'error', failures: 2, error: { code: 'ScriptFailed', message: /exit code 3/ } },
    explanation: /failed 2 times; .*cnapi noderole retry/,
  });
  t.match(await one.post(`/noderoles/${web.uuid}/retry`), {
    ...{ status: 409, body: { code: 'NoderoleTransition', message: new RegExp(`retry noderole ${parent.uuid}`) } },
  });
  await one.post(`/roles/${base}`, { script: 'echo' });
  t.equal((await two.post(`/noderoles/${parent.uuid}/retry`)).status, 200);
  t.match(await inState(one, web.uuid, 'active'), { run_count: 1, failures: 0 });
});

t.test('new data runs again only what has it, and a run that has begun is repeated', async (t) => {
  const { one, two, uuids, role, bind, commit } = await zoneWith(t, 2);
  await role('base', { flags: ['implicit'] });
  await role('web', { requires: ['base'], script: 'sleep 1' });
  const [web = { uuid: '' }, other = { uuid: '' }] = (await bind('web', uuids)).noderoles;
  await commit();
  await inState(one, web.uuid, 'transition');
  t.match((await one.post(`/noderoles/${web.uuid}`, { data: { v: 1 } })).body, { proposed_data: { v: 1 } });
  t.match((await commit(two)).body, { committed: 1 });
  t.match(await get(one, web.uuid), { state: 'transition', explanation: /will run again/, data: { v: 1 } });
  t.match(await inState(one, web.uuid, 'active'), { run_count: 2 });
  t.match(await inState(one, other.uuid, 'active'), { run_count: 1 });
});

t.test('a script whose result cannot be stored fails, and the others go on', async (t) => {
  const { one, two, uuids, role, bind, commit } = await zoneWith(t, 2);
  await role('bad', { script: `echo '{"wall":{"a":"\\u0000"}}'` });
  await role('good');
  const [bad = { uuid: '' }] = (await bind('bad', uuids.slice(0, 1))).noderoles;
  const { noderoles } = await bind('good', uuids);
  await commit();
  t.match(await inState(one, bad.uuid, 'error'), { error: { code: 'InvalidResult', message: /NUL/ } });
  for (const { uuid } of noderoles) await inState(two, uuid, 'active');
});

t.test('an end that the database refuses becomes a failure, and the other ends are stored', async (t) => {
  const { one, uuids, role, bind, commit, zone } = await zoneWith(t, 2);
  await zone.database.query(
    `alter table cnapi_noderole_runs add constraint refused check (coalesce(wall ->> 'poison', '') = '')`,
  );
  await role('bad', { jig: 'script', script: `echo '{"wall":{"poison":"x"}}'` });
  await role('none', { jig: 'script', script: 'exit 3' });
  await role('good', { jig: 'noop' });
  const [bad = { uuid: '' }] = (await bind('bad', uuids.slice(0, 1))).noderoles;
  const [none = { uuid: '' }] = (await bind('none', uuids.slice(1))).noderoles;
  const { noderoles } = await bind('good', uuids);
  await commit();
  t.match(await inState(one, bad.uuid, 'error'), { error: { code: 'Failed' } });
  t.match(await inState(one, none.uuid, 'error'), { error: { code: 'ScriptFailed' } });
  for (const { uuid } of noderoles) await inState(one, uuid, 'active');
});

t.test('a run that returns the same as the last one has the same wall', async (t) => {
  const { one, uuids, role, bind, commit } = await zoneWith(t, 1);
  await role('db', { script: `echo '{"wall":{"addr":"10.0.0.5"}}'` });
  const [db = { uuid: '' }] = (await bind('db', uuids)).noderoles;
  await commit();
  t.same((await inState(one, db.uuid, 'active')).wall, { addr: '10.0.0.5' });
  await one.post(`/noderoles/${db.uuid}/propose`);
  await commit();
  const again = await until(async () => {
    const found = await get(one, db.uuid);
    return found.run_count === 2 && found.state === 'active' ? found : undefined;
  }, 'the second run');
  t.same(again.wall, { addr: '10.0.0.5' });
});

t.test('an instance that leaves hands the graph over, and no run is begun twice', async (t) => {
  const { one, two, uuids, role, bind, commit, zone } = await zoneWith(t, 2);
  await role('web', { script: 'sleep 2' });
  const { noderoles } = await bind('web', uuids);
  await commit();
  for (const { uuid } of noderoles) await inState(two, uuid, 'transition');
  const { rows } = await zone.database.query<{ holder: string }>(
    'select cnapi_duty_holder(id) as holder from cnapi_duties',
  );
  const holder = rows[0]?.holder === one.cnapiUuid ? one : two;
  await holder.stop();
  const left = holder === one ? two : one;
  for (const { uuid } of noderoles) t.match(await inState(left, uuid, 'active'), { run_count: 1 });
  t.equal((await left.get<{ tasks: Task[] }>('/tasks')).body.tasks.length, 2);
});

t.test('two requests that bind the same role at the same time bind it once (C3)', async (t) => {
  const { one, two, uuids, role, shop } = await zoneWith(t, 1);
  await role('base');
  await role('web', { requires: ['base'] });
  const body = { role: 'web', servers: uuids };
  const answers = await Promise.all(
    [one, two, one, two].map((app) => app.post<Bound>(`/deployments/${shop}/noderoles`, body)),
  );
  t.same(
    answers.map(({ status }) => status),
    [200, 200, 200, 200],
  );
  t.equal(new Set(answers.map(({ body: { noderoles } }) => noderoles[0]?.uuid)).size, 1);
  t.equal(
    answers.reduce((sum, { body: { created } }) => sum + created, 0),
    2,
  );
});

t.test('a destructive role that has succeeded is not run again (C27)', async (t) => {
  const { one, uuids, role, bind, commit } = await zoneWith(t, 1);
  await role('install', { flags: ['destructive'] });
  const [noderole = { uuid: '' }] = (await bind('install', uuids)).noderoles;
  await commit();
  await inState(one, noderole.uuid, 'active');
  await one.post(`/noderoles/${noderole.uuid}`, { data: { disk: 'sda' } });
  await commit();
  t.match(await inState(one, noderole.uuid, 'active'), { run_count: 2, data: { disk: 'sda' } });
  t.equal((await one.get<{ tasks: Task[] }>('/tasks')).body.tasks.length, 1);
});

t.test('what is proposed again is out of the graph until the next commit, and can be deleted', async (t) => {
  const { one, two, uuids, role, bind, commit } = await zoneWith(t, 1);
  await role('base');
  await role('web', { requires: ['base'] });
  const [web = { uuid: '' }] = (await bind('web', uuids)).noderoles;
  await commit();
  const [base = { uuid: '' }] = (await inState(one, web.uuid, 'active')).parents;
  t.match(await one.post(`/noderoles/${web.uuid}/propose`), { status: 200, body: { state: 'proposed' } });
  t.match((await commit(two)).body, { committed: 1, due: 1 });
  t.match(await inState(one, web.uuid, 'active'), { run_count: 2 });
  t.equal(await one.delete(`/noderoles/${base.uuid}`), 409);
  t.equal(await one.delete(`/noderoles/${web.uuid}`), 204);
  t.equal(await two.delete(`/noderoles/${base.uuid}`), 204);
  t.equal(await two.delete(`/noderoles/${base.uuid}`), 404);
  t.same((await one.get('/noderoles')).body, { noderoles: [] });
});

t.test('the jig test does what its data says, if it is active', async (t) => {
  const { one, uuids, role, bind, commit, shop } = await zoneWith(t, 1, { annealerJigs: ['noop', 'test'] });
  await role('good', { jig: 'test', template: { test: { wall: { a: 1 } }, a: 0 } });
  await role('bad', { jig: 'test', template: { test: { fail: 'as told' } } });
  await role('script');
  const [good = { uuid: '' }] = (await bind('good', uuids)).noderoles;
  const [bad = { uuid: '' }] = (await bind('bad', uuids)).noderoles;
  await commit();
  t.same((await inState(one, good.uuid, 'active')).wall, { a: 1 });
  t.match(await inState(one, bad.uuid, 'error'), { error: { code: 'TestFailed', message: 'as told' } });
  const refused = await one.post(`/deployments/${shop}/noderoles`, { role: 'script', servers: uuids });
  t.match(refused, { status: 409, body: { code: 'RoleNotBindable', message: /jig script is not active/ } });
});

t.test('wrong requests about noderoles are refused by name, and bind nothing', async (t) => {
  const { one, shop, role, create } = await zoneWith(t, 0);
  await role('web', { requires: ['ntp'] });
  const path = `/deployments/${shop}/noderoles`;
  for (const [target, body, status, code] of [
    [path, { role: 'web', servers: [] }, 400, 'InvalidParameters'],
    [path, { role: 'web', servers: [MISSING] }, 404, 'ResourceNotFound'],
    [`/deployments/${MISSING}/noderoles`, { role: 'web', servers: [MISSING] }, 404, 'ResourceNotFound'],
    [`/deployments/${MISSING}/commit`, {}, 404, 'ResourceNotFound'],
    [`/noderoles/${MISSING}`, { data: {} }, 404, 'ResourceNotFound'],
    [`/noderoles/${MISSING}/retry`, {}, 404, 'ResourceNotFound'],
    [`/noderoles/${MISSING}/propose`, {}, 404, 'ResourceNotFound'],
    ['/roles', { name: 'ntp', jig: 'noop', requires: ['web'] }, 409, 'InvalidArgument'],
    ['/roles', { name: 'a', jig: 'script' }, 409, 'InvalidArgument'],
    ['/roles', { name: 'A', jig: 'noop' }, 400, 'InvalidParameters'],
    ['/roles', { name: 'a', jig: 'noop', flags: ['fast'] }, 400, 'InvalidParameters'],
    ['/deployments', { name: 'b', parent: MISSING }, 409, 'InvalidArgument'],
  ] as const)
    t.match(await one.post(target, body), { status, body: { code } }, `${target} ${JSON.stringify(body)}`);
  for (const target of ['/noderoles?after=1', '/noderoles?after=1.x', '/noderoles?state=done'])
    t.equal((await one.get(target)).status, 400, target);
  t.same((await one.get('/noderoles')).body, { noderoles: [] });
  const cycle = await one.post('/roles', { name: 'ntp', jig: 'noop', requires: ['web'] });
  t.match(cycle.body, { message: /ntp requires web requires ntp|web requires ntp requires web/ });
  await create('/deployments', { name: 'child', parent: shop });
  t.equal(await one.delete(`/deployments/${shop}`), 409, 'a deployment with others below it stays');
});

t.test('a role or deployment that noderoles have cannot be deleted or renamed', async (t) => {
  const { one, uuids, role, bind, shop } = await zoneWith(t, 1);
  const web = await role('web');
  await bind('web', uuids);
  t.equal(await one.delete(`/roles/${web}`), 409);
  t.equal(await one.delete(`/deployments/${shop}`), 409);
  t.match(await one.post(`/roles/${web}`, { name: 'other' }), { status: 409, body: { message: /cannot be renamed/ } });
});

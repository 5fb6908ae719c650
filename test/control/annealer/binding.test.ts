import t from 'tap';
import { BindingPlanner, type BoundNoderole } from '../../../lib/control/annealer/binding.ts';
import { type RoleDefinition, RoleGraph } from '../../../lib/control/annealer/role-graph.ts';
import { roleDefinition as role } from './role-definition.ts';

const bound = (id: string, name: string, serverUuid: string, more: Partial<BoundNoderole> = {}): BoundNoderole => ({
  id,
  role: name,
  serverUuid,
  deploymentId: 'app',
  cohort: 0,
  ...more,
});

function planner(
  roles: RoleDefinition[],
  existing: BoundNoderole[] = [],
  deploymentIds = ['app', 'system'],
  limits = { noderoles: 100, edges: 100 },
) {
  let ids = 0;
  return new BindingPlanner({
    roles: new RoleGraph(roles),
    deploymentIds,
    bound: existing,
    isJigActive: (jig) => jig !== 'inactive',
    newId: () => `new${ids++}`,
    limits,
  });
}

const placesOf = (one: BindingPlanner) =>
  one.plan().noderoles.map(({ role: name, serverUuid }) => `${name} ${serverUuid}`);
const edgesOf = (one: BindingPlanner) =>
  one.plan().edges.map(({ parentId, childId, isOrderOnly }) => `${parentId}>${childId}${isOrderOnly ? ' soft' : ''}`);

t.test('a binding creates each missing parent on the same server, parents first (C1, C9)', async (t) => {
  const one = planner([role('web', { requires: ['app'] }), role('app', { requires: ['base'] }), role('base')]);
  t.match(one.bind('web', 's1'), { role: 'web', serverUuid: 's1', deploymentId: 'app', cohort: 2 });
  t.strictSame(placesOf(one), ['base s1', 'app s1', 'web s1']);
  t.strictSame(edgesOf(one), ['new0>new1', 'new1>new2']);
  const byId = new Map(one.plan().noderoles.map((each) => [each.id, each]));
  for (const { parentId, childId } of one.plan().edges)
    t.ok((byId.get(childId)?.cohort ?? 0) > (byId.get(parentId)?.cohort ?? 9), 'a child is of a later cohort');
});

t.test('a second binding returns the same noderole and plans nothing (C2)', async (t) => {
  const one = planner([role('web')], [bound('w', 'web', 's1', { deploymentId: 'other' })]);
  t.equal(one.bind('web', 's1').id, 'w', 'whatever its deployment');
  t.strictSame(one.plan(), { noderoles: [], edges: [] });
  const first = one.bind('web', 's2');
  t.equal(one.bind('web', 's2').id, first.id);
  t.equal(one.plan().noderoles.length, 1);
});

t.test('what cannot be bound creates nothing, not even its parents (C4)', async (t) => {
  const roles = [
    role('web', { requires: ['base', 'dead'] }),
    role('base'),
    role('dead', { jig: 'inactive' }),
    role('lost', { requires: ['base', 'nothing'] }),
  ];
  for (const [name, code, message] of [
    ['web', 'RoleNotBindable', /role dead .* jig inactive/],
    ['lost', 'RoleNotBindable', /lost requires nothing/],
    ['unknown', 'RoleNotBindable', /no such role/],
  ] as const) {
    const one = planner(roles);
    t.throws(() => one.bind(name, 's1'), { code, message }, name);
    t.strictSame(one.plan(), { noderoles: [], edges: [] }, name);
    t.equal(one.bind('base', 's1').cohort, 0, 'the planner can go on');
    t.equal(one.plan().noderoles.length, 1);
  }
});

t.test('a parent bound elsewhere in the deployment, or above, is used again; no sibling of it (C5, C6)', async (t) => {
  const roles = [role('web', { requires: ['db'] }), role('db')];
  const here = planner(roles, [bound('d', 'db', 's9')]);
  here.bind('web', 's1');
  t.strictSame(edgesOf(here), ['d>new0']);
  const above = planner(roles, [bound('d', 'db', 's9', { deploymentId: 'system' })]);
  above.bind('web', 's1');
  t.strictSame(edgesOf(above), ['d>new0']);
  const sibling = planner(roles, [bound('d', 'db', 's9', { deploymentId: 'other' })]);
  sibling.bind('web', 's1');
  t.strictSame(placesOf(sibling), ['db s1', 'web s1'], 'bound on the same server instead');
});

t.test('the nearest deployment wins, and there the lowest cohort and id', async (t) => {
  const roles = [role('web', { requires: ['db'] }), role('db')];
  const near = planner(roles, [
    bound('z', 'db', 's7', { deploymentId: 'system' }),
    bound('c', 'db', 's9', { cohort: 1 }),
    bound('b', 'db', 's8', { cohort: 1 }),
  ]);
  near.bind('web', 's1');
  t.strictSame(edgesOf(near), ['b>new0']);
  const same = planner(roles, [bound('a', 'db', 's8'), bound('y', 'db', 's1', { cohort: 5 })]);
  t.equal(same.bind('web', 's1').cohort, 6);
  t.strictSame(edgesOf(same), ['y>new0'], 'the one on the same server before all');
});

t.test('an implicit parent on another server is never used (C7)', async (t) => {
  const one = planner(
    [role('web', { requires: ['ssh'] }), role('ssh', { flags: ['implicit'] })],
    [bound('x', 'ssh', 's9')],
  );
  one.bind('web', 's1');
  t.strictSame(placesOf(one), ['ssh s1', 'web s1']);
});

t.test('all members of a cluster are parents, and a new member joins existing children (C10)', async (t) => {
  const roles = [role('web', { requires: ['etcd'] }), role('etcd', { flags: ['cluster'] })];
  const one = planner(roles, [bound('e1', 'etcd', 's8'), bound('e2', 'etcd', 's9')]);
  one.bind('web', 's1');
  t.strictSame(edgesOf(one), ['e1>new0', 'e2>new0']);
  one.bind('etcd', 's7');
  t.strictSame(edgesOf(one), ['e1>new0', 'e2>new0', 'new1>new0']);
});

t.test('conflicting roles are refused on one server, and allowed on two (C11)', async (t) => {
  const one = planner([role('nginx', { conflicts: ['apache'] }), role('apache')], [bound('a', 'apache', 's1')]);
  t.throws(() => one.bind('nginx', 's1'), {
    code: 'ConflictingRoles',
    statusCode: 409,
    message: /nginx .* s1: it conflicts with role apache/,
  });
  t.equal(one.bind('nginx', 's2').serverUuid, 's2');
});

t.test('an abstract role is never bound; a provider satisfies what requires it (C12)', async (t) => {
  const roles = [
    role('web', { requires: ['db'] }),
    role('db', { flags: ['abstract'] }),
    role('pg', { provides: ['db'] }),
    role('mysql', { provides: ['db'] }),
  ];
  t.throws(() => planner(roles).bind('db', 's1'), { code: 'RoleNotBindable', message: /abstract; bind mysql or pg/ });
  t.throws(() => planner(roles).bind('web', 's1'), { message: /requires db, which mysql and pg provide; bind one/ });
  const one = planner(roles);
  one.bind('pg', 's1');
  one.bind('web', 's1');
  t.strictSame(edgesOf(one), ['new0>new1']);
  const only = planner(roles.filter(({ name }) => name !== 'mysql'));
  only.bind('web', 's1');
  t.strictSame(placesOf(only), ['pg s1', 'web s1'], 'the only provider is bound');
});

t.test('a soft requirement orders what exists and binds nothing (C14)', async (t) => {
  const roles = [role('web', { runsAfter: ['db'], requires: ['base'] }), role('db'), role('base')];
  const without = planner(roles);
  without.bind('web', 's1');
  t.strictSame(placesOf(without), ['base s1', 'web s1']);
  const one = planner(roles, [bound('d', 'db', 's9', { cohort: 3 })]);
  t.equal(one.bind('web', 's1').cohort, 4);
  t.strictSame(edgesOf(one), ['new0>new1', 'd>new1 soft']);
});

t.test('a plan is bounded, and what would exceed it is not planned in part', async (t) => {
  const roles = [role('web', { requires: ['base'] }), role('base', { flags: ['implicit'] })];
  const one = planner(roles, [], ['app'], { noderoles: 3, edges: 100 });
  one.bind('web', 's1');
  t.throws(() => one.bind('web', 's2'), { code: 'TooManyNoderoles', statusCode: 409, message: /at most 3/ });
  t.strictSame(placesOf(one), ['base s1', 'web s1']);
  const cluster = [role('web', { requires: ['etcd'] }), role('etcd', { flags: ['cluster'] })];
  const members = ['e1', 'e2', 'e3'].map((id) => bound(id, 'etcd', `s${id}`));
  const two = planner(cluster, members, ['app'], { noderoles: 100, edges: 2 });
  t.throws(() => two.bind('web', 's1'), { code: 'TooManyNoderoles', message: /2 edges/ });
  t.strictSame(two.plan(), { noderoles: [], edges: [] });
});

import t from 'tap';
import { findEdgeCycle, type RoleDefinition, RoleGraph } from '../../../lib/control/annealer/role-graph.ts';
import { roleDefinition as role } from './role-definition.ts';

t.test('a cycle of roles is found and printed, direct, indirect, soft, or by a provider (C8)', async (t) => {
  const cycleOf = (...roles: RoleDefinition[]) => new RoleGraph(roles).findCycleFrom(roles[0]?.name ?? '')?.join(' ');
  t.equal(cycleOf(role('a', { requires: ['b'] }), role('b', { requires: ['c'] }), role('c')), undefined);
  t.equal(cycleOf(role('a', { requires: ['a'] })), 'a a');
  t.equal(cycleOf(role('a', { requires: ['b'] }), role('b', { requires: ['a'] })), 'a b a');
  t.equal(
    cycleOf(role('start', { requires: ['a'] }), role('a', { requires: ['b'] }), role('b', { requires: ['a'] })),
    'a b a',
    'only the cycle itself',
  );
  t.equal(cycleOf(role('a', { requires: ['b'] }), role('b', { runsAfter: ['a'] })), 'a b a', 'by a soft requirement');
  t.equal(cycleOf(role('a', { requires: ['db'] }), role('pg', { provides: ['db'], requires: ['a'] })), 'a pg a');
});

t.test('a diamond is not a cycle, and a long chain needs no stack', async (t) => {
  const diamond = [role('d', { requires: ['b', 'c'] }), role('b', { requires: ['a'] }), role('c', { requires: ['a'] })];
  t.equal(new RoleGraph([...diamond, role('a')]).findCycleFrom('d'), undefined);
  const chain = Array.from({ length: 20_000 }, (_, index) => role(`r${index}`, { requires: [`r${index + 1}`] }));
  t.equal(new RoleGraph(chain).findCycleFrom('r0'), undefined);
  t.equal(new RoleGraph([...chain, role('r20000', { requires: ['r0'] })]).findCycleFrom('r0')?.length, 20_002);
});

t.test('a role whose requirement does not exist names it, and the likely one', async (t) => {
  const roles = new RoleGraph([
    role('web', { requires: ['base'] }),
    role('base', { requires: ['network'] }),
    role('networks'),
  ]);
  t.strictSame(roles.findMissing('web'), { missing: 'network', neededBy: 'base', hint: '; did you mean networks?' });
  t.equal(roles.findMissing('networks'), undefined);
  const provided = new RoleGraph([role('web', { requires: ['db'] }), role('pg', { provides: ['db'] })]);
  t.equal(provided.findMissing('web'), undefined, 'a provider is enough');
  const late = new RoleGraph([role('web', { runsAfter: ['nothing'] })]);
  t.equal(late.findMissing('web'), undefined, 'what it only comes after may be missing');
});

t.test('roles conflict in both directions, also by what they provide', async (t) => {
  const roles = new RoleGraph([
    role('nginx', { conflicts: ['apache'], provides: ['http'] }),
    role('apache'),
    role('caddy', { provides: ['http'] }),
    role('proxy', { conflicts: ['http'] }),
    role('db'),
  ]);
  t.equal(roles.isConflict('nginx', 'apache'), true);
  t.equal(roles.isConflict('apache', 'nginx'), true);
  t.equal(roles.isConflict('nginx', 'caddy'), true, 'both provide the same');
  t.equal(roles.isConflict('caddy', 'proxy'), true, 'one conflicts with what the other provides');
  t.equal(roles.isConflict('apache', 'caddy'), false);
  t.equal(roles.isConflict('db', 'nginx'), false);
  t.equal(roles.isConflict('nginx', 'nginx'), false, 'a role is bound once anyway');
});

t.test('what matters for a new noderole is what it requires, and what requires a cluster', async (t) => {
  const roles = new RoleGraph([
    role('web', { requires: ['db'], runsAfter: ['log'] }),
    role('db', { requires: ['base'] }),
    role('base'),
    role('log'),
    role('other', { requires: ['base'] }),
    role('etcd', { flags: ['cluster'], requires: ['base'] }),
    role('api', { requires: ['etcd'] }),
    role('job', { requires: ['etcd'] }),
  ]);
  const sorted = (name: string) => {
    const { whole, single } = roles.scopeOf(name);
    return { whole: whole.toSorted(), single: single.toSorted() };
  };
  t.strictSame(sorted('web'), { whole: [], single: ['base', 'db', 'log', 'web'] });
  t.strictSame(sorted('etcd'), { whole: ['api', 'etcd', 'job'], single: ['base'] });
  t.strictSame(sorted('api'), { whole: ['api', 'etcd', 'job'], single: ['base'] });
});

t.test('a cycle of other roles does not count, and many providers of many names cost no time', async (t) => {
  const cycle = [role('p', { requires: ['q'] }), role('q', { requires: ['p'] })];
  t.equal(new RoleGraph([...cycle, role('web')]).findCycleFrom('web'), undefined);
  t.strictSame(new RoleGraph([...cycle, role('web', { requires: ['p'] })]).findCycleFrom('web'), ['p', 'q', 'p']);
  const names = Array.from({ length: 50 }, (_, index) => `n${index}`);
  const many = Array.from({ length: 500 }, (_, index) => [
    role(`provider${index}`, { provides: names }),
    role(`user${index}`, { requires: names }),
  ]).flat();
  const graph = new RoleGraph([...many, role('top', { requires: many.map(({ name }) => name) })]);
  t.equal(graph.findCycleFrom('top'), undefined);
  t.equal(graph.findMissing('top'), undefined);
});

t.test('edges that outlived their roles may form a cycle', async (t) => {
  const edge = (parent: string, child: string) => ({ parent, child });
  t.equal(findEdgeCycle([edge('a', 'b'), edge('b', 'c'), edge('a', 'c')]), undefined);
  t.equal(findEdgeCycle([edge('a', 'b'), edge('b', 'c'), edge('c', 'a')])?.length, 4);
  t.equal(findEdgeCycle([]), undefined);
});

import t from 'tap';
import { type Ancestor, dataOf, inputsOf, type NoderoleData } from '../../../lib/control/annealer/noderole-inputs.ts';

const data = (fields: Partial<NoderoleData>): NoderoleData => ({
  template: {},
  wall: {},
  user: {},
  ...fields,
});

const ancestor = (distance: number, fields: Partial<NoderoleData>, more: Partial<Ancestor> = {}): Ancestor => ({
  distance,
  isSameServer: true,
  order: 0,
  data: data(fields),
  ...more,
});

t.test('in a noderole the user is stronger than the last run, and that than the role (C62)', async (t) => {
  const each = (value: string) => ({ shared: value, [value]: true });
  const ofRun = { template: each('template'), wall: each('wall') };
  t.strictSame(dataOf(data(ofRun)), { shared: 'wall', template: true, wall: true });
  t.equal(dataOf(data({ ...ofRun, user: each('user') })).shared, 'user');
});

t.test('own data is stronger than a near parent, a far parent, and others on the server (C61)', async (t) => {
  const layers = {
    others: [data({ user: { v: 'other', other: 1 } })],
    ancestors: [ancestor(1, { user: { v: 'near', near: 1 } }), ancestor(3, { user: { v: 'far', far: 1 } })],
  };
  const rest = { other: 1, far: 1, near: 1 };
  t.strictSame(inputsOf({ own: data({ user: { v: 'own' } }), ...layers, wants: [] }).sent, { v: 'own', ...rest });
  t.strictSame(inputsOf({ own: data({}), ...layers, wants: [] }).sent, { v: 'near', ...rest });
  const [, far] = layers.ancestors;
  t.strictSame(inputsOf({ own: data({}), others: layers.others, ancestors: far ? [far] : [], wants: [] }).sent, {
    v: 'far',
    other: 1,
    far: 1,
  });
});

t.test('of ancestors of the same distance the later one in the order wins, whatever their place', async (t) => {
  const one = ancestor(1, { user: { v: 'first' } }, { order: 1 });
  const two = ancestor(1, { user: { v: 'second' } }, { order: 2 });
  for (const ancestors of [
    [one, two],
    [two, one],
  ])
    t.strictSame(inputsOf({ own: data({}), ancestors, others: [], wants: [] }).sent, { v: 'second' });
});

t.test('of an ancestor on another server only what the role wants is visible (C63)', async (t) => {
  const secretive = { user: { db: { port: 5432, password: 'x' }, host: 'a' } };
  const remote = ancestor(1, secretive, { isSameServer: false });
  const see = (wants: string[]) => inputsOf({ own: data({}), ancestors: [remote], others: [], wants }).sent;
  t.strictSame(see([]), {});
  t.strictSame(see(['db/port']), { db: { port: 5432 } });
  t.strictSame(see(['db/port', 'host', 'missing/path']), { db: { port: 5432 }, host: 'a' });
  t.strictSame(
    inputsOf({ own: data({}), ancestors: [ancestor(1, secretive)], others: [], wants: [] }).sent,
    secretive.user,
  );
});

t.test('a wall is compared with neither the last wall nor the other noderoles of the server', async (t) => {
  const own = data({ template: { a: 1 }, wall: { ip: '::1' }, user: { b: 2 } });
  const others = [data({ user: { port: 80 } })];
  const { sent, compared } = inputsOf({ own, ancestors: [ancestor(1, { wall: { up: true } })], others, wants: [] });
  t.strictSame(sent, { port: 80, up: true, a: 1, b: 2 });
  t.strictSame(compared, { up: true, a: 1, b: 2 });
});

/** How many VMs of a server may change, and how much an instance remembers of them. */
import t from 'tap';
import { VmChangeLimiter } from '../../../lib/control/servers/vm-change-limiter.ts';

/** Characters for one VM. */
const DIGEST = 24;

const vmsOf = (count: number, state = 'running') =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`vm-${index}`, { uuid: `vm-${index}`, state }]));

t.test('a report of the same VMs is unchanged, and a server may change 1,000 of them at the same time', async (t) => {
  const changes = new VmChangeLimiter({ now: () => 0 });
  t.equal(changes.admit('s', vmsOf(1_000)), 'changed');
  t.equal(changes.admit('s', vmsOf(1_000)), 'unchanged');
  t.equal(changes.admit('s', vmsOf(1_000, 'stopped')), 'changed', 'the report that exceeds the limit');
  t.equal(changes.admit('s', vmsOf(1_000)), 'held');
  t.equal(changes.admit('other', vmsOf(1)), 'changed');
});

t.test('with too many VMs the servers that changed longest ago are forgotten', async (t) => {
  const changes = new VmChangeLimiter({ now: () => 0 }, 10 * DIGEST);
  changes.admit('first', vmsOf(4));
  changes.admit('second', vmsOf(4));
  changes.admit('first', vmsOf(5));
  t.equal(changes.admit('second', vmsOf(4)), 'unchanged', 'what is counted is not more than what is kept');
  changes.admit('third', vmsOf(2));
  t.equal(changes.admit('first', vmsOf(5)), 'unchanged');
  t.equal(changes.admit('third', vmsOf(2)), 'unchanged');
  t.equal(changes.admit('second', vmsOf(4)), 'changed', 'it is new again');
});

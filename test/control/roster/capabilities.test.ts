import t from 'tap';
import { CapabilitySets } from '../../../lib/control/roster/capabilities.ts';

t.test('agents that say the same words share one set', async (t) => {
  const sets = new CapabilitySets();
  const first = sets.of(['task:nop', 'task:sleep']);
  t.same([...first], ['task:nop', 'task:sleep']);
  t.equal(sets.of(['task:nop', 'task:sleep']), first);
  t.not(sets.of(['task:nop']), first);
  t.not(sets.of(['task:nop,task:sleep']), sets.of(['task:nop', 'task:sleep']), 'words are not run together');
});

t.test('of ever new words no set is kept', async (t) => {
  const sets = new CapabilitySets();
  for (let number = 0; number < 100; number++) sets.of([`task:${number}`]);
  const fresh = sets.of(['task:fresh']);
  t.ok(fresh.has('task:fresh'));
  t.not(sets.of(['task:fresh']), fresh);
  t.equal(sets.of(['task:7']), sets.of(['task:7']), 'those that are known stay');
});

import t from 'tap';
import { CapabilitySets } from '../../../../lib/control/roster/accept/capabilities.ts';

t.test('agents with the same capabilities share one set', async (t) => {
  const sets = new CapabilitySets();
  const first = sets.of(['task:nop', 'task:sleep']);
  t.same([...first], ['task:nop', 'task:sleep']);
  t.equal(sets.of(['task:nop', 'task:sleep']), first);
  t.not(sets.of(['task:nop']), first);
  t.not(sets.of(['task:nop,task:sleep']), sets.of(['task:nop', 'task:sleep']), 'words are not concatenated');
});

t.test('ever new capabilities do not make the table of sets grow without bound', async (t) => {
  const sets = new CapabilitySets();
  for (let number = 0; number < 100; number++) sets.of([`task:${number}`]);
  const fresh = sets.of(['task:fresh']);
  t.ok(fresh.has('task:fresh'));
  t.not(sets.of(['task:fresh']), fresh);
  t.equal(sets.of(['task:7']), sets.of(['task:7']), 'known sets are kept');
});

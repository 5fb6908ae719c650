import t from 'tap';
import { countVersions } from '../../../lib/control/link/agent-versions.ts';

t.test('agents are counted by version', async (t) => {
  t.same(countVersions(['0.3.0', '0.2.0', '0.3.0']), { '0.3.0': 2, '0.2.0': 1 });
  t.same(countVersions([]), {});
});

t.test('agents that invent versions add no more than one', async (t) => {
  const invented = Array.from({ length: 500 }, (_, index) => `9.${index}.0`);
  const counts = countVersions([...invented, '0.3.0', '0.3.0', '"} 1\n', '"} 2\n']);
  t.equal(Object.keys(counts).length, 20);
  t.match(counts, { '0.3.0': 2, other: 2 + 500 - 18 });
});

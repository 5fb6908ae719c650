import t from 'tap';
import { ageOfCnAgent } from '../../../lib/control/servers/cn-agent-version.ts';

const ages: [version: unknown, age: ReturnType<typeof ageOfCnAgent>][] = [
  ['2.10.9', 'older'],
  ['1.99.99', 'older'],
  ['2.9.0', 'older'],
  ['2.11.0', 'new enough'],
  ['2.11.1', 'new enough'],
  ['2.12.0-rc1', 'new enough'],
  ['10.0.0', 'new enough'],
  ['2.11', 'unknown'],
  ['2.11.9999999', 'unknown'],
  ['new', 'unknown'],
  [211, 'unknown'],
  [{ toString: 1 }, 'unknown'],
  [undefined, 'unknown'],
];
for (const [version, age] of ages)
  t.test(`a cn-agent of version ${JSON.stringify(version)} is ${age}, compared with 2.11.0`, async (t) => {
    const other = { name: 'vm-agent', version: '9.9.9' };
    t.equal(ageOfCnAgent([other, { name: 'cn-agent', version }] as never, '2.11.0'), age);
  });

t.test('a server without a cn-agent has none of a known age', async (t) => {
  t.equal(ageOfCnAgent([], '2.11.0'), 'unknown');
});

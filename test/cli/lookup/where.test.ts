import t from 'tap';
import { matches, parseWhereOption } from '../../../lib/cli/lookup/where.ts';

t.test('--where conditions match servers', (t) => {
  const server = { hostname: 'web-1.example', setup: true, traits: { rack: 'r1', list: [1] }, comments: '' };
  const rows: [string, boolean][] = [
    ['hostname=web-*', true],
    ['hostname=web', false],
    ['hostname=WEB-*', false],
    ['hostname!=db-*', true],
    ['hostname=web-1?example', false],
    ['setup=true', true],
    ['traits.rack=r1', true],
    ['traits.none=', true],
    ['traits.rack.deeper=', true],
    ['comments=*', true],
    ['constructor=*Object*', false],
    ['traits.list=[1]', true],
  ];
  for (const [text, expected] of rows) t.equal(matches(server, parseWhereOption(text)), expected, text);
  for (const bad of ['hostname', '=x', '1a=b', ''])
    t.throws(() => parseWhereOption(bad), { message: /is not NAME=PATTERN/ });
  t.end();
});

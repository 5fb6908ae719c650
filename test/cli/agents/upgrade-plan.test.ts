import t from 'tap';
import { mayBeOfVersion, parseWave, planUpgrade, versionInName } from '../../../lib/cli/agents/upgrade-plan.ts';

const NONE: ReadonlySet<string> = new Set();

const server = (uuid: string, version: string | undefined, status: 'running' | 'unknown' = 'running') => ({
  uuid,
  status,
  sysinfo: version === undefined ? {} : { 'CN Agent Version': version },
});

t.test('servers are divided into waves, without those that have the version or are away', (t) => {
  const servers = [
    server('a', '1.0.0'),
    server('b', '2.0.0'),
    server('c', undefined),
    server('d', '1.0.0', 'unknown'),
    server('e', '2.0.0', 'unknown'),
    server('f', '3.0.0'),
    server('g', '1.0.0'),
    { ...server('u', undefined), setup: false },
  ];
  const rows: [{ percent?: number; count?: number }, string[]][] = [
    [{ count: 1 }, ['a', 'c', 'f', 'g']],
    [{ count: 3 }, ['a c f', 'g']],
    [{ count: 99 }, ['a c f g']],
    [{ percent: 50 }, ['a c', 'f g']],
    [{ percent: 10 }, ['a', 'c', 'f', 'g']],
    [{ percent: 100 }, ['a c f g']],
  ];
  for (const [wave, expected] of rows) {
    const { waves, upToDate, away, withoutAgent } = planUpgrade(servers, { version: '2.0.0', wave, failed: NONE });
    t.same(
      waves.map((one) => one.map(({ uuid }) => uuid).join(' ')),
      expected,
      JSON.stringify(wave),
    );
    t.same([upToDate.map(({ uuid }) => uuid), away.map(({ uuid }) => uuid)], [['b', 'e'], ['d']]);
    t.same(
      withoutAgent.map(({ uuid }) => uuid),
      ['u'],
      'a server that runs by Ur has no agent',
    );
  }
  const installing = [
    { ...server('a', '1.0.0'), setup: false },
    { ...server('b', undefined), setup: true },
  ];
  t.same(
    planUpgrade(installing, { version: '2.0.0', wave: { count: 9 }, failed: NONE }).waves,
    [installing],
    'agents install',
  );
  t.same(planUpgrade([], { version: '1.0.0', wave: { percent: 10 }, failed: NONE }).waves, []);
  t.end();
});

t.test('servers on which the version could not be installed come last', (t) => {
  const servers = ['a', 'b', 'c', 'd'].map((uuid) => server(uuid, '1.0.0'));
  const request = { version: '2.0.0', wave: { count: 1 }, failed: new Set(['a', 'c', 'x']) };
  const { waves } = planUpgrade(servers, request);
  t.same(
    waves.flat().map(({ uuid }) => uuid),
    ['b', 'd', 'a', 'c'],
  );
  const rows: [string | undefined, boolean][] = [
    ['package_file=https://h/cn-agent-2.0.0.tar package_name=cn-agent', true],
    ['package_file=https://h/cn-agent-1.5.0.tar package_name=cn-agent', false],
    ['package_file=https://h/agent.tar package_name=cn-agent', true],
    [undefined, true],
  ];
  for (const [summary, expected] of rows) t.equal(mayBeOfVersion(summary, '2.0.0'), expected, `${summary}`);
  t.end();
});

t.test('a wave without servers is refused with a sentence that names the option', (t) => {
  for (const text of ['0', '0%', '0.0%', '00%'])
    t.throws(() => parseWave(text), { message: /^--wave 0.* upgrades no/ });
  for (const text of ['-1', '-5%', '']) t.throws(() => parseWave(text), { message: /^--wave .* is neither a number/ });
  t.throws(() => parseWave('101%'), { message: '--wave 101% is more than 100%' });
  for (const [text, wave] of Object.entries({ '0.5%': { percent: 0.5 }, '100%': { percent: 100 }, 3: { count: 3 } }))
    t.same(parseWave(text), wave);
  t.end();
});

t.test('the version is in the name of the package', (t) => {
  const names: Record<string, string | undefined> = {
    'https://h/a/cn-agent-0.3.0.tar': '0.3.0',
    'https://h/a/cn-agent-0.3.0-rc.1.tar?token=x-1.0.0.tar': '0.3.0-rc.1',
    'file:///srv/cn-agent-10.20.30.tar': '10.20.30',
    'https://h/cn-agent.tar': undefined,
    'https://h/cn-agent-1.2.tar': undefined,
  };
  for (const [name, version] of Object.entries(names)) t.equal(versionInName(name), version, name);
  t.end();
});

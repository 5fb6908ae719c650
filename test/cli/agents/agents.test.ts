import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { VmAgent } from '../../control/vms/vm-agent.ts';
import type { TestApp } from '../../support/apps.ts';
import { freshZone } from '../../support/apps.ts';
import { newMachine } from '../../support/scripted-agent.ts';
import { until } from '../../support/until.ts';
import { Cli } from '../rig.ts';

/**
 * Agents of version 1.0.0 on servers that are called s1, s2 and so on here, in the order of their
 * uuids; those of `failing` are rolled back.
 */
async function startFleet(t: Test, app: TestApp, { size, failing }: { size: number; failing: Set<string> }) {
  const order: string[] = [];
  const machines = Array.from({ length: size }, newMachine);
  // Names are compared in this way.
  const { compare } = new Intl.Collator('en', { numeric: true });
  machines.sort((one, other) => compare(one.serverUuid, other.serverUuid));
  const agents = await Promise.all(
    machines.map(async (machine, index) => {
      const name = `s${index + 1}`;
      const agent = await VmAgent.start(app, machine);
      t.teardown(() => agent.agent.close());
      const report = (version: string) => {
        const sysinfo = {
          UUID: agent.machine.serverUuid,
          Hostname: 'scripted',
          Setup: 'true',
          'CN Agent Version': version,
        };
        agent.agent.send({ type: 'sysinfo', digest: version, sysinfo });
      };
      report('1.0.0');
      agent.answer = ({ params }) => {
        order.push(name);
        if (failing.has(name)) return { error: { code: 'AgentRolledBack', message: 'it exited with code 7' } };
        const version = String(params.package_file).includes('2.0.0') ? '2.0.0' : '1.5.0';
        report(version);
        return { result: { name: 'cn-agent', version, previous: '1.0.0', changed: true } };
      };
      return { name, agent };
    }),
  );
  const named = (text: string) =>
    agents.reduce((all, { name, agent }) => all.replaceAll(`scripted ${agent.machine.serverUuid}`, name), text);
  return { agents, order, named };
}

t.test('agents are upgraded in waves, and the upgrade halts after failures', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const failing = new Set(['s2']);
  const { order, agents, named } = await startFleet(t, app, { size: 5, failing });
  const cli = new Cli(t, [app.url]);
  const versions = async () => (await cli.run('agents', 'list', '--json')).stdout;
  await until(async () => (await versions()).split('"1.0.0"').length === 6, 'the versions of all agents');
  t.match(await cli.run('agents', 'list'), { code: 0, stdout: /scripted +running +1\.0\.0/ });
  const upgrade = ['agents', 'upgrade', '--all', '--package', '/srv/cn-agent-2.0.0.tar'];

  const dry = await cli.run(...upgrade, '--wave', '40%', '--dry-run');
  t.match(dry, { code: 0, stderr: /5 servers to upgrade to 2\.0\.0 in 3 waves; 0 have it, 0 are not running/ });
  t.equal(named(dry.stdout), [1, 1, 2, 2, 3].map((wave, index) => `wave ${wave}: s${index + 1} has 1.0.0\n`).join(''));
  t.same(order, [], 'nothing was installed');

  const halted = await cli.run(...upgrade, '--wave', '40%');
  t.equal(halted.code, 1);
  t.match(named(halted.stdout), /^s1: 1\.0\.0 -> 2\.0\.0$/m);
  t.match(named(halted.stderr), /s2: it exited with code 7 \(AgentRolledBack\); cnapi task [0-9a-f-]{36}/);
  t.match(halted.stderr, /1 upgraded, 1 failed, 3 not begun, 0 not running, halted/);
  t.same(order.toSorted(), ['s1', 's2'], 'the second wave did not begin');
  const task = [...(agents[0]?.agent.received.values() ?? [])][0];
  t.same(task?.params, { package_file: 'file:///srv/cn-agent-2.0.0.tar', package_name: 'cn-agent' });

  await until(async () => (await versions()).includes('"2.0.0"'), 'the new version of the first');
  order.length = 0;
  const more = await cli.run(...upgrade, '--wave', '1', '--halt-on', '1');
  t.match(more, { code: 1, stderr: /4 servers to upgrade to 2\.0\.0 in 4 waves; 1 have it/ });
  t.match(more.stderr, /3 upgraded, 1 failed, 0 not begun, 0 not running, halted$/m);
  t.same(order, ['s3', 's4', 's5', 's2'], 'one after the other; the server that failed comes last');

  await until(async () => (await versions()).split('"2.0.0"').length === 5, 'the new versions of the others');
  failing.clear();
  const finished = await cli.run(...upgrade, '--retry');
  t.match(finished, { code: 0, stdout: 'scripted: 1.0.0 -> 2.0.0\n' }, 'the same command finishes it');
  const last = [...(agents[1]?.agent.received.values() ?? [])].at(-1);
  t.equal(last?.params.retry, true);
  await until(async () => (await versions()).split('"2.0.0"').length === 6, 'the new version of the last one');
  t.match(await cli.run(...upgrade), { code: 0, stdout: '', stderr: /0 servers to upgrade/ });
});

t.test('a package of another version than was said, and wrong options, are failures', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  await startFleet(t, app, { size: 1, failing: new Set() });
  const cli = new Cli(t, [app.url]);
  const listed = async () => (await cli.run('agents', 'list', '--json')).stdout;
  await until(async () => (await listed()).includes('"1.0.0"'), 'the version of the agent');
  const wrong = await cli.run('agents', 'upgrade', '--all', '--package', 'https://h/cn-agent-1.4.0.tar', '--json');
  t.equal(wrong.code, 1);
  t.match(JSON.parse(wrong.stdout.trim()), {
    outcome: 'failed',
    wave: 1,
    error: /has version 1\.5\.0, and not 1\.4\.0/,
  });
  const refusals: [RegExp, ...string[]][] = [
    [/--package is missing/, '--all'],
    [/say with --to/, '--all', '--package', '/srv/agent.tar'],
    [/neither a URL/, '--all', '--package', 'agent-1.0.0.tar'],
    [/--wave x is neither/, '--all', '--package', '/a-1.0.0.tar', '--wave', 'x'],
    [/--wave 0% upgrades no server/, '--all', '--package', '/a-1.0.0.tar', '--wave', '0%'],
    [/--halt-on 0 is not/, '--all', '--package', '/a-1.0.0.tar', '--halt-on', '0'],
    [/On which servers/, '--package', '/a-1.0.0.tar'],
  ];
  for (const [stderr, ...args] of refusals)
    t.match(await cli.run('agents', 'upgrade', ...args), { code: 2, stderr }, args.join(' '));
});

t.test('the list shows all agents, also if one says nonsense of itself', async (t) => {
  const app = await (await freshZone(t)).startApp();
  const cli = new Cli(t, [app.url]);
  const nonsense: object[] = [
    { 'MiB of Memory': '99999999999999999999' },
    { 'CN Agent Update': { version: { toString: 1, valueOf: 1 } } },
    { 'CN Agent Update': 'up', 'CN Agent Version': { toString: 1 } },
  ];
  for (const sysinfo of nonsense) {
    const UUID = randomUUID();
    const { status } = await app.post(`/servers/${UUID}/sysinfo`, { sysinfo: { UUID, Hostname: UUID, ...sysinfo } });
    t.equal(status, 200);
    const { code, stdout } = await cli.run('agents', 'list');
    t.equal(code, 0);
    t.ok(stdout.includes(UUID));
    t.match(await cli.run('servers'), { code: 0 });
  }
});

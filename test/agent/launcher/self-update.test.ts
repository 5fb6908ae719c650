import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { VERSION } from '../../../lib/platform/version.ts';
import {
  brokenAgent,
  type PackageShop,
  packageShop,
  startLauncher,
  versionsSay,
} from '../../support/agent-packages.ts';
import { type Script, ScriptedInstance, type ScriptedSession } from '../../support/scripted-instance.ts';
import { until } from '../../support/until.ts';

const MAIN = fileURLToPath(new URL('../../../lib/agent/main.ts', import.meta.url));

async function instance(t: Test, script: Script = {}): Promise<ScriptedInstance> {
  const started = await ScriptedInstance.start(script);
  t.teardown(() => started.stop());
  return started;
}

async function install(session: ScriptedSession, params: Record<string, unknown>): Promise<string> {
  const id = crypto.randomUUID();
  const { epoch } = await session.received('inventory');
  session.task({ id, epoch, name: 'agent_install', params, timeoutMs: 600_000 });
  return id;
}

/** The first session of an agent of this version. */
const sessionOf = (one: ScriptedInstance, version: string, from = 0): Promise<ScriptedSession> =>
  until(
    () => one.sessions.slice(from).find((session) => session.all('hello')[0]?.agentVersion === version),
    `a session of version ${version}`,
  );

const endedOnce = (t: Test, one: ScriptedInstance, id: string) => {
  const ends = one.sessions.flatMap((session) => session.all('task_end')).filter((end) => end.id === id);
  t.equal(new Set(ends.map((end) => JSON.stringify({ ...end, attempt: 0 }))).size, 1, 'the task has exactly one end');
};

t.test('the agent installs its next version, and the task ends when that has come up', async (t) => {
  const [shop, one] = await Promise.all([packageShop(t), instance(t)]);
  const file = await shop.addAgent('9.1.0');
  const launcher = startLauncher(t, shop, { url: one.url });
  const first = await one.session(0);
  const id = await install(first, { package_file: file, package_name: 'cn-agent' });
  const next = await sessionOf(one, '9.1.0');
  const { tasks } = await next.received('inventory');
  t.same(tasks, [{ id, attempt: 1, state: 'running' }], 'the task goes on in the new version');
  t.match(await next.end(id), {
    outcome: 'complete',
    result: { name: 'cn-agent', version: '9.1.0', previous: VERSION, changed: true },
  });
  endedOnce(t, one, id);
  t.match(await next.received('sysinfo', ({ sysinfo }) => 'CN Agent Update' in sysinfo), {
    sysinfo: { 'CN Agent Update': { version: '9.1.0', from: VERSION, outcome: 'confirmed' } },
  });

  const again = await install(next, { package_file: file });
  t.match(await next.end(again), { outcome: 'complete', result: { version: '9.1.0', changed: false } });
  const older = await shop.addAgent('9.0.0');
  const refused = await install(next, { package_file: older });
  t.match(await next.end(refused), {
    outcome: 'failure',
    error: { code: 'PackageDowngrade', message: /9\.0\.0 is older/ },
  });

  launcher.child.kill('SIGTERM');
  t.same(await launcher.exit, [0, null], 'a stopped service exits as its agent does');
  const from = one.sessions.length;
  startLauncher(t, shop, { url: one.url });
  const last = await sessionOf(one, '9.1.0', from);
  t.pass('the confirmed version runs after the next start of the service');
  const meant = await install(last, { package_file: older, downgrade: true });
  t.match(await (await sessionOf(one, '9.0.0')).end(meant), { outcome: 'complete', result: { version: '9.0.0' } });
});

const failures: Record<string, { code: string; trialSeconds: number; reason: RegExp }> = {
  'a version that exits is rolled back': { code: 'process.exit(7);', trialSeconds: 30, reason: /exited with code 7/ },
  'a version that never connects is rolled back': {
    code: 'setInterval(() => {}, 1000);',
    trialSeconds: 2,
    reason: /was ended by SIGTERM before it had been connected/,
  },
};

for (const [name, { code, trialSeconds, reason }] of Object.entries(failures)) {
  t.test(name, async (t) => {
    const [shop, one] = await Promise.all([packageShop(t), instance(t, { welcome: { sendSysinfo: true } })]);
    const file = await shop.add({ version: '9.1.0', files: brokenAgent(code) });
    startLauncher(t, shop, { url: one.url, trialSeconds });
    const id = await install(await one.session(0), { package_file: file });
    const back = await one.session(1);
    t.equal((await back.received('hello')).agentVersion, VERSION, 'the version before runs again');
    const end = await back.end(id);
    t.match(end, { outcome: 'failure', error: { code: 'AgentRolledBack', message: reason } });
    endedOnce(t, one, id);
    const update = { version: '9.1.0', outcome: 'rolled-back', reason };
    t.match(await back.received('sysinfo', ({ sysinfo }) => 'CN Agent Update' in sysinfo), {
      sysinfo: { 'CN Agent Update': update },
    });
    const again = await install(back, { package_file: file });
    t.match(await back.end(again), { error: { code: 'PackageFailedBefore', message: reason } });
  });
}

t.test('an agent without its launcher, and one without keys, install nothing', async (t) => {
  const [shop, one] = await Promise.all([packageShop(t), instance(t)]);
  const file = await shop.addAgent('9.1.0');
  const start = (...args: string[]) => {
    const child = spawn(process.execPath, [MAIN, '--url', one.url, ...args], { stdio: 'ignore' });
    t.teardown(() => child.kill('SIGKILL'));
  };
  start('--data', shop.data, '--package-key', shop.key, '--package-path', shop.folder);
  const id = await install(await one.session(0), { package_file: file });
  t.match(await (await one.session(0)).end(id), { error: { code: 'NoLauncher', message: /launcher\/main\.ts/ } });
  start('--data', `${shop.data}-2`);
  const other = await install(await one.session(1), { package_file: file });
  t.match(await (await one.session(1)).end(other), { error: { code: 'PackagesNotAllowed' } });
});

/** At each of these, launcher and agent are killed. */
const powerLosses: Record<string, (shop: PackageShop, one: ScriptedInstance) => Promise<unknown>> = {
  'while the package arrives': async () => undefined,
  'once the version is staged': (shop) =>
    versionsSay(shop, 'a staged version', ({ change }) => change.name !== 'settled'),
  'once its trial is recorded': (shop) => versionsSay(shop, 'a trial', ({ change }) => change.name === 'trial'),
  'once it is connected': (_shop, one) => sessionOf(one, '9.1.0'),
  'once it is confirmed': (shop) => versionsSay(shop, 'a confirmed version', ({ ends }) => ends.length > 0),
};

for (const [name, moment] of Object.entries(powerLosses)) {
  t.test(`after a loss of power ${name}, the version is installed and the task has one end`, async (t) => {
    const [shop, one] = await Promise.all([packageShop(t), instance(t, { acknowledge: false })]);
    const file = await shop.addAgent('9.1.0');
    const launcher = startLauncher(t, shop, { url: one.url });
    const first = await one.session(0);
    const id = await install(first, { package_file: file });
    await until(() => first.events(id).includes('started'), 'the task to start');
    await moment(shop, one);
    await launcher.killAll();
    one.script.acknowledge = true;
    const from = one.sessions.length;
    startLauncher(t, shop, { url: one.url });
    const next = await sessionOf(one, '9.1.0', from);
    t.match(await next.end(id), { outcome: 'complete', result: { version: '9.1.0', previous: VERSION } });
    endedOnce(t, one, id);
    await versionsSay(
      shop,
      'a settled version',
      ({ change, current }) => change.name === 'settled' && current !== null,
    );
  });
}

t.test('after three losses of power in its trial, a version is rolled back', async (t) => {
  const [shop, one] = await Promise.all([packageShop(t), instance(t)]);
  const file = await shop.add({ version: '9.1.0', files: brokenAgent('setInterval(() => {}, 1000);') });
  let launcher = startLauncher(t, shop, { url: one.url, trialSeconds: 600 });
  const id = await install(await one.session(0), { package_file: file });
  for (const starts of [1, 2, 3]) {
    const isTrial = ({ change }: { change: { name: string; starts?: number } }) => change.starts === starts;
    await versionsSay(shop, `trial number ${starts}`, isTrial);
    await launcher.killAll();
    launcher = startLauncher(t, shop, { url: one.url, trialSeconds: 600 });
  }
  const back = await one.session(1);
  t.match(await back.end(id), { error: { code: 'AgentRolledBack', message: /started 3 times/ } });
});

t.test('when only the launcher is killed, its agent stops and the next launcher waits for that', async (t) => {
  const [shop, one] = await Promise.all([packageShop(t), instance(t)]);
  const launcher = startLauncher(t, shop, { url: one.url });
  const first = await one.session(0);
  launcher.child.kill('SIGKILL');
  await launcher.exit;
  startLauncher(t, shop, { url: one.url });
  const second = await one.session(1);
  t.ok(first.closed !== undefined, 'the first agent has disconnected before the second one connects');
  t.match(await second.received('hello'), { agentVersion: VERSION });
});

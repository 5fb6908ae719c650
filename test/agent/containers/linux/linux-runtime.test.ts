import { spawn } from 'node:child_process';
import { chmod, readFile, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import t from 'tap';
import { Containers } from '../../../../lib/agent/containers/containers.ts';
import { allContainers } from '../../../../lib/agent/containers/linux/container-paths.ts';
import { containerRecords } from '../../../../lib/agent/containers/open-containers.ts';
import { signalProcess } from '../../../../lib/agent/machine/proc.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { ContainerMachine, endOf, lacksContainers, shell } from '../../../support/container-machine.ts';
import { FILE_TIMEOUT_MS } from '../../../support/patience.ts';
import { until } from '../../../support/until.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksContainers();
const RUN = { id: 'a', number: 1 };
const SERVE = 'trap "echo asked; exit 7" TERM; echo ready; while true; do sleep 0.05; done';

t.test('a container runs to its end, and its output and its exit code are kept', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const device = await stat('/dev/null');
  const runtime = await machine.agent();
  t.equal(runtime.unavailableReason, undefined);
  t.equal(runtime.noLimitsReason, undefined);
  const { exit, lines } = await machine.run(runtime, shell('a', 'id -u; cat /etc/hostname; exit 3'));
  t.same(exit, { code: 3 });
  t.same(lines, ['0', 'a.example']);
  await runtime.cleanUpRun(RUN);
  t.same(await machine.traces(), ['a']);
  t.same(await runtime.leftovers(), ['a']);
  await runtime.remove('a');
  await runtime.remove('a');
  t.same(await machine.traces(), []);
  const { uid, gid, mode } = await stat('/dev/null');
  t.same([uid, gid, mode], [device.uid, device.gid, device.mode], 'the devices of the machine are as before');
});

t.test('the first process comes first, also when another one has a lower number', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent();
  const before = spawn('sleep', ['100'], { stdio: 'ignore' });
  t.teardown(() => before.kill('SIGKILL'));
  const spec = shell('a', SERVE);
  await runtime.prepare(spec);
  await runtime.start(spec, 1);
  t.teardown(() => runtime.signal(RUN, 'SIGKILL'));
  await machine.addProcess('a.1', before.pid ?? 0);
  const pids = await runtime.processes(RUN);
  t.ok(pids.includes(before.pid ?? 0));
  t.equal(pids[0], await machine.pid('a'));
});

t.test('it runs again after its end, and each run has its own exit', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent();
  const spec = shell('a', 'test -e /tmp/ran && exit 5; touch /tmp/ran; exit 4');
  t.same((await machine.run(runtime, spec)).exit, { code: 4 });
  await runtime.cleanUpRun(RUN);
  const end = endOf(runtime, { id: 'a', number: 2 });
  await runtime.start(spec, 2);
  t.same(await end, { code: 5 });
});

t.test('signals reach the first process; a kill is reported as a signal', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent();
  const spec = shell('a', SERVE);
  await runtime.prepare(spec);
  const [first, second] = [endOf(runtime, RUN), endOf(runtime, { id: 'a', number: 2 })];
  await runtime.start(spec, 1);
  await machine.line('a', /ready/);
  await runtime.signal(RUN, 'SIGTERM');
  t.same(await first, { code: 7 });
  await runtime.signal(RUN, 'SIGTERM');
  const copied = runtime.freeze(RUN, async () => void t.fail('nothing is copied'));
  await t.rejects(copied, /pause of its processes failed/, 'nor is anything tried again');
  await runtime.cleanUpRun(RUN);
  await runtime.start(spec, 2);
  await runtime.signal({ id: 'a', number: 2 }, 'SIGKILL');
  t.same(await second, { signal: 'SIGKILL' });
});

t.test('secrets are in no argument and in no file that others can read', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent();
  const env = { TOKEN: 'secret-3141', PATH: '/bin' };
  const spec = shell('a', SERVE);
  await runtime.prepare(spec);
  await runtime.start({ ...spec, process: { ...spec.process, env } }, 1);
  await machine.line('a', /ready/);
  const bundle = join(allContainers(machine.directory), 'a');
  t.equal((await stat(join(bundle, 'config.json'))).mode & 0o777, 0o600);
  t.equal((await stat(bundle)).mode & 0o777, 0o710);
  t.match(await readFile(join(bundle, 'config.json'), 'utf8'), /secret-3141/);
  t.notMatch(await readFile(`/proc/${await machine.monitorPid('a')}/cmdline`, 'utf8'), /secret-3141/);
  t.notMatch(await readFile(`/proc/${await machine.monitorPid('a')}/environ`, 'utf8'), /secret-3141/);
});

t.test('a start that fails says why and leaves nothing of the run', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent();
  const spec = shell('a', 'true');
  const wrong = { ...spec, process: { ...spec.process, args: ['/bin/no-such-program'] } };
  await runtime.prepare(wrong);
  await t.rejects(runtime.start(wrong, 1), /could not be created: .*no-such-program.*no such file/i);
  t.same(await machine.traces(), ['a']);
  const attach = () => Promise.reject(new Error('There is no bridge br9'));
  const cut = await machine.agent({ networks: { attach, detach: async () => undefined } });
  await t.rejects(cut.start(spec, 2), /There is no bridge br9/);
  t.same(await machine.traces(), ['a']);
});

t.test('the next agent finds what runs, and learns how it ends', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const first = await machine.agent();
  const spec = shell('a', SERVE);
  await first.prepare(spec);
  await first.start(spec, 1);
  await machine.line('a', /ready/);
  const next = await machine.agent();
  const end = endOf(next, RUN);
  t.equal(await next.find(RUN), 'running');
  t.equal(await next.find({ id: 'a', number: 2 }), 'not-started');
  await next.signal(RUN, 'SIGTERM');
  t.same(await end, { code: 7 });
  t.same(await machine.lines('a'), ['ready', 'asked']);
});

t.test('the next agent learns what has ended without an agent', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const first = await machine.agent();
  const spec = shell('a', SERVE);
  await first.prepare(spec);
  await first.start(spec, 1);
  await machine.line('a', /ready/);
  await first.stop();
  signalProcess(await machine.pid('a'), 'SIGKILL');
  await until(async () => (await machine.traces()).includes('a.1') && (await first.find(RUN)) !== 'running');
  const next = await machine.agent();
  t.same(await next.find(RUN), { exit: { signal: 'SIGKILL' } });
  const later = await machine.agent({ bootId: 'another' });
  t.same(await later.find(RUN), { exit: { signal: 'SIGKILL' } });
});

t.test('what ran before a restart of the machine has ended', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const first = await machine.agent();
  const spec = shell('a', SERVE);
  await first.prepare(spec);
  await first.start(spec, 1);
  const next = await machine.agent({ bootId: 'another' });
  t.match(await next.find(RUN), { exit: { unknown: /machine restarted/ } });
  await next.cleanUpRun(RUN);
  t.same(await machine.traces(), ['a']);
});

t.test('an agent that ended during a start leaves a run that is not started', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const isCreated = Promise.withResolvers<void>();
  const attach = () => {
    isCreated.resolve();
    return new Promise<void>(() => undefined);
  };
  const first = await machine.agent({ networks: { attach, detach: async () => undefined } });
  const spec = shell('a', SERVE);
  await first.prepare(spec);
  void first.start(spec, 1);
  await isCreated.promise;
  const next = await machine.agent();
  t.equal(await next.find(RUN), 'not-started');
  await next.cleanUpRun(RUN);
  t.same(await machine.traces(), ['a']);
});

t.test('without its monitor a container is killed, and its end says so', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent();
  const spec = shell('a', SERVE);
  await runtime.prepare(spec);
  const end = endOf(runtime, RUN);
  await runtime.start(spec, 1);
  await machine.line('a', /ready/);
  signalProcess(await machine.monitorPid('a'), 'SIGKILL');
  t.match(await end, { unknown: /monitor \(conmon\) was killed/ });
  await runtime.cleanUpRun(RUN);
  t.same(await machine.traces(), ['a']);
});

t.test('what no agent knows is found and removed, also while it runs', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const first = await machine.agent();
  for (const id of ['a', 'b']) await first.prepare(shell(id, SERVE));
  await first.start(shell('a', SERVE), 1);
  const next = await machine.agent();
  t.same((await next.leftovers()).sort(), ['a', 'b']);
  for (const id of await next.leftovers()) await next.remove(id);
  t.same(await machine.traces(), []);
  await t.rejects(next.remove('../records'), /is not a container id/);
});

t.test('a new container has nothing of an earlier one that was not removed', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const first = await machine.agent();
  await first.prepare(shell('a', SERVE));
  await first.start(shell('a', SERVE), 1);
  const pid = await machine.pid('a');
  const next = await machine.agent();
  await next.prepare(shell('a', 'echo new'));
  await next.cleanUpRun(RUN);
  t.throws(() => process.kill(pid, 0), { code: 'ESRCH' });
  const end = endOf(next, RUN);
  await next.start(shell('a', 'echo new'), 1);
  t.same(await end, { code: 0 });
  t.same(await machine.lines('a'), ['new']);
});

t.test('thirty containers start and end concurrently, and nothing of them is left', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent();
  const numbers = Array.from({ length: 30 }, (_, index) => index + 1);
  const startedAt = performance.now();
  const codes = await Promise.all(
    numbers.map(async (number) => (await machine.run(runtime, shell(`c-${number}`, `exit ${number}`))).exit),
  );
  t.comment(`thirty runs took ${Math.round(performance.now() - startedAt)} ms`);
  t.same(
    codes,
    numbers.map((code) => ({ code })),
  );
  await Promise.all(numbers.map((number) => runtime.remove(`c-${number}`)));
  t.same(await machine.traces(), []);
});

t.test('where no container can run the agent says why', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const parent = dirname(machine.directory);
  await chmod(parent, 0o700);
  const closed = await machine.agent();
  t.equal(
    closed.unavailableReason,
    `No container can run on this server: its users cannot pass the directory ${parent}; run chmod o+x ${parent}`,
  );
  await t.rejects(closed.prepare(shell('a', 'true')), /run chmod o\+x/);
  t.same(await closed.leftovers(), []);
  await chmod(parent, 0o711);
});

t.test('without limits a container is refused', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const cgroupParent = '/cgroup.procs/below-a-file';
  const strict = await machine.agent({ cgroupParent });
  t.match(strict.noLimitsReason, /cannot be set here: the group .* cannot be made \(ENOTDIR\)/);
  await t.rejects(strict.prepare(shell('a', 'true')), /Limits of memory, processor and processes cannot be set here/);
  await strict.remove('a');
  const usual = await machine.agent();
  await usual.prepare(shell('b', 'true'));
  const later = await machine.agent({ cgroupParent });
  await t.rejects(later.start(shell('b', 'true'), 1), /Limits of memory, processor and processes cannot be set here/);
  await usual.remove('b');
  t.same(await machine.traces(), []);
});

t.test('containers are stopped with time, and are found by the next agent', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const open = async () => {
    const runtime = await machine.agent();
    const records = containerRecords(join(machine.directory, 'records'));
    const containers = new Containers({ clock: systemClock, log: silentLogger, runtime, records });
    await containers.start();
    return containers;
  };
  const first = await open();
  for (const [id, script] of Object.entries({ polite: SERVE, stubborn: 'trap "" TERM; echo ready; sleep 1000' })) {
    await first.create(shell(id, script));
    t.match(await first.startContainer(id), { state: { name: 'running', run: 1 } });
    await machine.line(id, /ready/);
  }
  await first.stop();
  const next = await open();
  const term = { signal: 'SIGTERM', timeoutMs: 300 };
  t.match(await next.stopContainer('polite', { ...term, timeoutMs: 60_000 }), {
    state: { name: 'stopped', exit: { code: 7 } },
  });
  t.match(await next.stopContainer('stubborn', term), { state: { name: 'stopped', exit: { signal: 'SIGKILL' } } });
  t.match(await next.startContainer('polite'), { state: { name: 'running', run: 2 } });
  await Promise.all(['polite', 'stubborn'].map((id) => next.delete(id, { force: true })));
  t.same(await machine.traces(), []);
  await next.stop();
});

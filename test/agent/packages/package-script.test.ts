/** The programs of packages, as processes of a real machine. */
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { openLinuxMachine } from '../../../lib/agent/machine/linux-machine.ts';
import { allProcesses, signalProcess } from '../../../lib/agent/machine/proc.ts';
import { runPackageScript } from '../../../lib/agent/packages/package-script.ts';
import { type Clock, systemClock } from '../../../lib/platform/time/clock.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';

/**
 * `run` starts a program `install` with this text; `pid` is the process that it has named in the
 * file `pid`.
 */
async function prepare(t: Test, clock: Clock = systemClock) {
  const root = await mkdtemp(join(tmpdir(), 'package-script-'));
  t.teardown(() => rm(root, { recursive: true, force: true }));
  const [directory, runDirectory] = [join(root, 'package'), join(root, 'run')];
  await Promise.all([mkdir(directory), mkdir(runDirectory)]);
  const serverUuid = crypto.randomUUID();
  const machine = await openLinuxMachine({ clock: systemClock, serverUuid, agentVersion: '1', runDirectory });
  const stop = new AbortController();
  const read = (name: string) => readFile(join(directory, name), 'utf8');
  const journalled: boolean[] = [];
  return {
    journalled,
    stop,
    read,
    pid: () =>
      until(async () => Number(await read('pid').catch(() => '')) || undefined, 'the program to name its process'),
    async run(text: string) {
      await writeFile(join(directory, 'install'), `#!/bin/sh\n${text}\n`, { mode: 0o700 });
      const script = { script: 'install', name: 'probe', version: '1.0.0', directory } as const;
      const journalProcesses = async (group: unknown) => void journalled.push(group !== undefined);
      const caller = { taskId: crypto.randomUUID(), machine, signal: stop.signal, journalProcesses };
      await runPackageScript(script, caller, clock);
    },
  };
}

const isAlive = async (pid: number) => (await allProcesses()).some((one) => one.pid === pid && one.state !== 'Z');
const untilGone = (pid: number) => until(async () => !(await isAlive(pid)), `process ${pid} to end`);
const NAME_IT = 'echo $! >new; mv new pid';

t.test('a process that a program leaves behind with its output ends, and the program has succeeded', async (t) => {
  const { run, pid } = await prepare(t);
  await run(`sleep 97 & ${NAME_IT}; exit 0`);
  await untilGone(await pid());
});

t.test('the processes of a program are in the journal while it runs', async (t) => {
  const { run, journalled } = await prepare(t);
  await run('exit 0');
  await t.rejects(run('exit 3'));
  t.same(journalled, [true, false, true, false]);
});

t.test('a service that a program starts in a session of its own goes on', async (t) => {
  const { run, pid } = await prepare(t);
  await run(`setsid sleep 97 </dev/null >/dev/null 2>&1 & ${NAME_IT}`);
  t.ok(await isAlive(await pid()));
  signalProcess(await pid(), 'SIGKILL');
});

t.test('the whole process group of a program that fails ends', async (t) => {
  const { run, pid } = await prepare(t);
  await t.rejects(run(`sleep 97 >/dev/null 2>&1 & ${NAME_IT}; echo no licence >&2; exit 3`), {
    code: 'PackageScriptFailed',
    message: 'The program install of probe 1.0.0 failed with exit code 3: no licence',
  });
  await untilGone(await pid());
});

t.test('the whole process group of a program that is cancelled ends', async (t) => {
  const { run, pid, stop } = await prepare(t);
  const rejected = t.rejects(run(`trap '' TERM; sleep 97 & ${NAME_IT}; wait`), { message: 'cancelled' });
  const child = await pid();
  stop.abort(new Error('cancelled'));
  await rejected;
  await untilGone(child);
});

t.test('a program that does not end in its time is ended', async (t) => {
  const clock = new ManualClock();
  const { run, pid } = await prepare(t, clock);
  const rejected = t.rejects(run(`sleep 97 & ${NAME_IT}; wait`), {
    code: 'PackageScriptFailed',
    message: /^The program install of probe 1\.0\.0 did not end within 600 s/,
  });
  const child = await pid();
  await clock.advance(600_000);
  await rejected;
  await untilGone(child);
});

t.test('a program may print more than is kept', async (t) => {
  const { run } = await prepare(t);
  await run('head -c 5000000 /dev/zero');
  await t.rejects(run('head -c 5000000 /dev/zero | tr "\\0" x >&2; printf "\\nthe end" >&2; exit 1'), {
    message: /^The program install of probe 1\.0\.0 failed with exit code 1: x{100,}\nthe end$/,
  });
});

t.test('a program gets nothing else of the environment of the agent than a command', async (t) => {
  process.env.AGENT_PROBE = 'only for the agent';
  t.teardown(() => delete process.env.AGENT_PROBE);
  const { run, read } = await prepare(t);
  await run('tr "\\0" "\\n" </proc/self/environ >environ');
  const names = (await read('environ')).split('\n').map((line) => line.split('=')[0] ?? '');
  const ofShell = ['', 'PWD', 'OLDPWD', 'SHLVL', '_'];
  t.same(names.filter((name) => !ofShell.includes(name)).sort(), [
    'HOME',
    'LANG',
    'PACKAGE_DIRECTORY',
    'PACKAGE_NAME',
    'PACKAGE_VERSION',
    'PATH',
  ]);
});

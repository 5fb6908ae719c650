/** The tasks of packages, with real packages on the machine that runs this test. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { openLinuxMachine } from '../../../lib/agent/machine/linux-machine.ts';
import { Packages } from '../../../lib/agent/packages/packages.ts';
import { packageTasks } from '../../../lib/agent/packages/tasks.ts';
import type { TaskDefinition } from '../../../lib/agent/runner/task-definition.ts';
import { TaskFailure } from '../../../lib/agent/task-failure.ts';
import { VersionsFile } from '../../../lib/agent/versions/versions-file.ts';
import { silentLogger as log } from '../../../lib/platform/log.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { packageShop, script } from '../../support/agent-packages.ts';
import { until } from '../../support/until.ts';

async function prepare(t: Test) {
  const shop = await packageShop(t);
  const runDirectory = join(shop.folder, 'run');
  await mkdir(runDirectory);
  const machine = await openLinuxMachine({ clock, serverUuid: crypto.randomUUID(), agentVersion: '1', runDirectory });
  const allowed = { keys: [shop.publicKey], urls: [], directories: [shop.folder], allowScripts: true };
  const versions = await VersionsFile.open(shop.data, '0.1.0');
  const own = { versions, trial: undefined, isLaunched: false, requestRestart: () => undefined };
  const packages = new Packages({ ...allowed, ...own, data: shop.data, clock, log });
  t.teardown(() => packages.stop());
  await packages.start();
  const stop = new AbortController();
  const run = (task: TaskDefinition, params: Record<string, unknown>) => {
    const caller = {
      id: crypto.randomUUID(),
      signal: stop.signal,
      progress: () => undefined,
      starts: () => 1,
      journalProcesses: async () => {},
    };
    const context = { ...caller, machine, packages };
    return task.run(params, context as unknown as Parameters<TaskDefinition['run']>[1]);
  };
  const install = async (name: string, uninstall: string) => {
    const file = await shop.add({ name, version: '1.0.0', files: [script('uninstall', uninstall)] });
    t.match(await run(packageTasks.agent_install, { package_file: file }), { name, changed: true });
  };
  const uninstall = (agents: readonly string[]) => run(packageTasks.agents_uninstall, { agents });
  return { shop, stop, install, uninstall, names: () => packages.list().map(({ name }) => name) };
}

t.test('when the program of one package fails, the others are removed and each name is reported', async (t) => {
  const { install, uninstall, names } = await prepare(t);
  await install('first', 'exit 0');
  await install('second', 'echo in use >&2; exit 1');
  await install('third', 'exit 0');
  const message = 'The program uninstall of second 1.0.0 failed with exit code 1: in use';
  await t.rejects(uninstall(['first', 'second', 'other', 'third']), {
    code: 'PackageScriptFailed',
    message: `${message}; removed: first, third; not installed: other`,
    result: {
      removed: ['first', 'third'],
      absent: ['other'],
      failed: [{ name: 'second', code: 'PackageScriptFailed', message }],
    },
  });
  t.same(names(), ['second']);
  t.same(await uninstall(['first']), { removed: [], absent: ['first'] });
});

t.test('a removal that is cancelled reports what was removed before', async (t) => {
  const { shop, stop, install, uninstall, names } = await prepare(t);
  const began = join(shop.folder, 'began');
  await writeFile(began, '');
  await install('first', 'exit 0');
  await install('second', `echo yes >'${began}'; sleep 97`);
  await install('third', 'exit 0');
  const rejected = t.rejects(uninstall(['first', 'second', 'third']), {
    code: 'TaskCancelled',
    message: 'it was cancelled; removed: first',
    result: { removed: ['first'], absent: [], failed: [] },
  });
  await until(async () => (await readFile(began, 'utf8')) !== '', 'the second program to begin');
  stop.abort(new TaskFailure('TaskCancelled', 'it was cancelled'));
  await rejected;
  t.same(names(), ['second', 'third']);
});

import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { parseHierarchies } from '../../../../lib/agent/containers/cgroups/mounts.ts';
import { findRunCgroups } from '../../../../lib/agent/containers/cgroups/run-cgroups.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';

const HYBRID = `30 25 0:27 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
32 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
35 30 0:32 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
36 30 0:32 / /mnt/again rw - cgroup cgroup rw,cpu,cpuacct
37 30 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory`;

t.test('the trees of control groups are those that are mounted', async (t) => {
  t.same(parseHierarchies(HYBRID), [
    { directory: '/sys/fs/cgroup/unified', version: 2, controllers: [] },
    { directory: '/sys/fs/cgroup/systemd', version: 1, controllers: ['name=systemd'] },
    { directory: '/sys/fs/cgroup/cpu,cpuacct', version: 1, controllers: ['cpu', 'cpuacct'] },
    { directory: '/sys/fs/cgroup/memory', version: 1, controllers: ['memory'] },
  ]);
  t.same(parseHierarchies(''), []);
});

/** Plain files in the place of a tree of version 2. */
async function tree(t: Test, controllers: string) {
  const directory = await mkdtemp(join(tmpdir(), 'cnapi-test-groups-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  await writeFile(join(directory, 'cgroup.controllers'), `${controllers}\n`);
  const mountInfo = `31 30 0:28 / ${directory} rw - cgroup2 cgroup2 rw`;
  return { directory, cgroups: await findRunCgroups({ clock: systemClock, parent: '/cnapi', mountInfo }) };
}

t.test('with version 2 the parent group passes its controllers on, and usage is read there', async (t) => {
  const { directory, cgroups } = await tree(t, 'cpuset cpu io memory pids');
  t.equal(cgroups.noLimitsReason, undefined);
  t.equal(await readFile(join(directory, 'cnapi/cgroup.subtree_control'), 'utf8'), '+memory +cpu +pids');
  t.equal(cgroups.pathOf('a.1'), '/cnapi/a.1');
  t.equal(await cgroups.usage('a.1'), undefined);
  const run = join(directory, 'cnapi/a.1');
  await mkdir(run);
  const files = { 'memory.current': '4096', 'cpu.stat': 'usage_usec 700\nuser_usec 600', 'pids.current': '3' };
  const events = 'low 0\noom 2\noom_kill 1\noom_group_kill 0';
  for (const [name, text] of Object.entries({ ...files, 'memory.events': events }))
    await writeFile(join(run, name), `${text}\n`);
  t.same(await cgroups.usage('a.1'), { memoryBytes: 4096, cpuUs: 700, processes: 3 });
  t.equal(await cgroups.wasOutOfMemory('a.1'), true);
  t.equal(await cgroups.wasOutOfMemory('b.1'), false);
  await cgroups.adoptMonitor('b.2', 4711);
  t.equal(await readFile(join(directory, 'cnapi/b.2.monitor/cgroup.procs'), 'utf8'), '4711');
  t.same((await cgroups.names()).sort(), ['a.1', 'b.2']);
});

t.test('what cannot be limited is said with the reason', async (t) => {
  const { directory, cgroups } = await tree(t, 'cpu io');
  const begin = 'Limits of memory, processor and processes cannot be set here:';
  t.equal(cgroups.noLimitsReason, `${begin} ${directory} does not have memory, pids; delegate these controllers`);
  const none = await findRunCgroups({ clock: systemClock, parent: '/cnapi', mountInfo: '' });
  t.equal(none.noLimitsReason, `${begin} no control groups are mounted`);
  const lacking = HYBRID.replaceAll('/sys/fs/cgroup', join(directory, 'none'));
  const mountInfo = `${lacking}\n38 30 0:34 / ${directory} rw - cgroup cgroup rw,memory`;
  const v1 = await findRunCgroups({
    clock: systemClock,
    parent: '/cnapi',
    mountInfo: mountInfo.replace(/^37.*$/m, ''),
  });
  t.equal(v1.noLimitsReason, `${begin} this kernel has no ${directory}/cnapi/memory.limit_in_bytes`);
});

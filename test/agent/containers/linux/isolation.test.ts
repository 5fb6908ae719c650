/** What a process in a container may see, do and use; each is tried inside of one. */
import { readFile } from 'node:fs/promises';
import { constants } from 'node:os';
import t from 'tap';
import type { ContainerSpec } from '../../../../lib/agent/containers/container.ts';
import { ContainerMachine, endOf, lacksContainers, shell } from '../../../support/container-machine.ts';
import { lacks } from '../../../support/debian-programs.ts';
import { FILE_TIMEOUT_MS } from '../../../support/patience.ts';
import { until } from '../../../support/until.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksContainers();
const MIB = 1024 * 1024;
const RUN = { id: 'a', number: 1 };

/** The machine's own perl, for system calls that no program of busybox makes. */
const withPerl = (id: string, script: string): ContainerSpec => ({
  ...shell(id, ''),
  process: { args: ['/usr/bin/perl', '-e', script], env: {}, directory: '/', uid: 0, gid: 0 },
  mounts: [
    { source: '/usr', target: '/usr', isReadOnly: true },
    { source: '/lib', target: '/lib', isReadOnly: true },
    { source: '/lib64', target: '/lib64', isReadOnly: true },
  ],
});
const skipPerl = skip || lacks('perl') || (process.arch === 'x64' ? false : 'the numbers are those of x86_64');

t.test('a program that takes more memory than its limit is killed', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent();
  const limits = { memoryBytes: 32 * MIB, cpuPercent: 100, processes: 16 };
  const greedy = 'exec dd if=/dev/zero of=/dev/null bs=100M count=1';
  t.same((await machine.run(runtime, shell('a', greedy, { limits }))).exit, { signal: 'SIGKILL', outOfMemory: true });
  t.same((await machine.run(runtime, shell('b', `${greedy.slice(5)}; exit 9`, { limits }))).exit, {
    code: 9,
    outOfMemory: true,
  });
  const enough = shell('c', 'dd if=/dev/zero of=/dev/null bs=8M count=1', { limits });
  t.same((await machine.run(runtime, enough)).exit, { code: 0 });
});

t.test('processes that multiply are bounded, and can be killed', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent();
  const limits = { memoryBytes: 64 * MIB, cpuPercent: 50, processes: 12 };
  // Bounded by itself as well, for the day when the limit does not work.
  const many = '(i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done) & exec sleep 1000';
  const spec = shell('a', many, { limits });
  await runtime.prepare(spec);
  const end = endOf(runtime, RUN);
  await runtime.start(spec, 1);
  t.equal(await machine.cgroupFile('a.1', 'pids.max'), '12');
  await until(async () => Number(/max (\d+)/.exec((await machine.cgroupFile('a.1', 'pids.events')) ?? '')?.[1]) > 0);
  const usage = await runtime.usage(RUN);
  t.ok((usage?.processes ?? 0) <= 12, `${usage?.processes} processes`);
  await runtime.signal(RUN, 'SIGKILL');
  t.match(await end, { signal: 'SIGKILL' });
  await runtime.remove('a');
  t.same(await machine.traces(), []);
});

t.test('the limits are those of the specification, and the usage is that of the group', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent();
  const limits = { memoryBytes: 40 * MIB, cpuPercent: 50, processes: 16 };
  const spec = shell('a', 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo counted; exec sleep 1000', {
    limits,
  });
  await runtime.prepare(spec);
  await runtime.start(spec, 1);
  const file = (...names: string[]) =>
    Promise.all(names.map((name) => machine.cgroupFile('a.1', name))).then((texts) => texts.find(Boolean));
  t.match(await file('cpu.cfs_quota_us', 'cpu.max'), /^50000( 100000)?$/);
  t.equal(await file('memory.limit_in_bytes', 'memory.max'), `${40 * MIB}`);
  t.match(await file('memory.memsw.limit_in_bytes', 'memory.swap.max'), new RegExp(`^(${40 * MIB}|0)$`));
  await machine.line('a', /counted/);
  const usage = await runtime.usage(RUN);
  t.ok((usage?.cpuUs ?? 0) > 1_000, `${usage?.cpuUs} µs`);
  t.ok((usage?.memoryBytes ?? 0) > 10_000 && (usage?.memoryBytes ?? 0) < 40 * MIB, `${usage?.memoryBytes} bytes`);
  t.equal(usage?.processes, 1);
  await runtime.signal(RUN, 'SIGKILL');
  await runtime.cleanUpRun(RUN);
  t.equal(await runtime.usage(RUN), undefined);
});

t.test('root of a container is an ordinary user of the machine', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent();
  const spec = shell('a', 'id -u; grep -E "^(Cap|NoNew|Seccomp:)" /proc/self/status; exec sleep 1000');
  const user = { ...spec, id: 'b', process: { ...spec.process, uid: 1000, gid: 1000 } };
  const seen: Record<string, string> = {};
  for (const each of [spec, user]) {
    await runtime.prepare(each);
    await runtime.start(each, 1);
    await machine.line(each.id, /^Seccomp/);
    const status = await readFile(`/proc/${await machine.pid(each.id)}/status`, 'utf8');
    seen[each.id] = `${/^Uid:\t(\d+)/m.exec(status)?.[1]} ${/^Gid:\t(\d+)/m.exec(status)?.[1]}`;
  }
  t.same(seen, { a: '200000 200000', b: '201000 201000' });
  t.same(await machine.lines('a'), [
    '0',
    'CapInh:\t0000000000000000',
    'CapPrm:\t00000000800405fb',
    'CapEff:\t00000000800405fb',
    'CapBnd:\t00000000800405fb',
    'CapAmb:\t0000000000000000',
    'NoNewPrivs:\t1',
    'Seccomp:\t2',
  ]);
  t.same((await machine.lines('b')).slice(0, 4), [
    '1000',
    ...['CapInh', 'CapPrm', 'CapEff'].map((name) => `${name}:\t0000000000000000`),
  ]);
});

t.test('what tells about the machine is hidden or cannot be written', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent();
  const script = `
    for path in /proc/kcore /proc/keys /proc/timer_list /proc/interrupts; do test -s $path && echo "read $path"; done
    for path in /sys/firmware /sys/dev/block /proc/acpi; do test -n "$(ls $path 2>/dev/null)" && echo "list $path"; done
    for path in /proc/sysrq-trigger /proc/sys/kernel/hostname /proc/sys/kernel/core_pattern /sys/kernel/x; do
      (echo x > $path) 2>/dev/null && echo "write $path"
    done
    for path in /dev/mem /dev/kmsg /dev/vda /dev/fuse /dev/net; do test -e $path && echo "device $path"; done
    mount -t tmpfs x /tmp 2>/dev/null && echo mount
    unshare -r true 2>/dev/null && echo unshare
    mount -o remount,rw /sys 2>/dev/null && echo remount
    kill -0 2 2>/dev/null && echo sees
    ls /sys/class/net; echo end`;
  const { lines } = await machine.run(runtime, shell('a', script));
  t.same(lines, ['lo', 'end']);
});

t.test('a read-only root cannot be written; a read-only mount neither', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent();
  const script =
    'for path in /tmp/x /data/x; do touch $path 2>&1; done; test -d /data/man || ls /data; touch /dev/shm/x && echo shared';
  const { lines } = await machine.run(
    runtime,
    shell('a', script, {
      root: { layers: [], isReadOnly: true },
      mounts: [{ source: '/usr/share', target: '/data', isReadOnly: true }],
    }),
  );
  t.same(lines, ['touch: /tmp/x: Read-only file system', 'touch: /data/x: Read-only file system', 'shared']);
});

const EPERM = constants.errno.EPERM;
const ENOSYS = 38;
/**
 * Numbers of x86_64. With an argument that the kernel would take from anybody where there is one.
 */
const CALLS: Readonly<Record<string, [call: string, errno: number]>> = {
  'unshare of a user namespace': ['272, 0x10000000', EPERM],
  'clone of a user namespace': ['56, 0x10000011, 0, 0, 0, 0', EPERM],
  clone3: ['435, 0, 0', ENOSYS],
  setns: ['308, 0, 0', EPERM],
  mount: ['165, 0, 0, 0, 0, 0', EPERM],
  fsopen: ['430, 0, 0', EPERM],
  pivot_root: ['155, 0, 0', EPERM],
  ptrace: ['101, 0, 0, 0, 0', EPERM],
  process_vm_readv: ['310, 1, 0, 0, 0, 0, 0', EPERM],
  pidfd_getfd: ['438, 0, 0, 0', EPERM],
  keyctl: ['250, 0, 0, 0, 0, 0', EPERM],
  add_key: ['248, 0, 0, 0, 0, 0', EPERM],
  bpf: ['321, 0, 0, 0', EPERM],
  perf_event_open: ['298, 0, 0, 0, 0, 0', EPERM],
  userfaultfd: ['323, 1', EPERM],
  io_uring_setup: ['425, 0, 0', EPERM],
  kexec_load: ['246, 0, 0, 0, 0', EPERM],
  init_module: ['175, 0, 0, 0', EPERM],
  open_by_handle_at: ['304, 0, 0, 0', EPERM],
  'socket of AF_ALG': ['41, 38, 5, 0', EPERM],
  'socket of AF_VSOCK': ['41, 40, 1, 0', EPERM],
  'personality without address randomization': ['135, 0x0040000', EPERM],
  'prctl of PR_SET_MM': ['157, 35, 15, 0, 0, 0', EPERM],
  'prctl of PR_SET_MM with a bit that the kernel ignores': ['157, 0x100000023, 15, 0, 0, 0', EPERM],
  'prctl of PR_SET_TIMERSLACK': ['157, 29, 50000, 0, 0, 0', 0],
  'prctl of PR_GET_DUMPABLE': ['157, 3, 0, 0, 0, 0', 0],
  'a socket of AF_INET': ['41, 2, 1, 0', 0],
  'a clone as of fork': ['56, 17, 0, 0, 0, 0', 0],
};

t.test('system calls that a container does not need are refused', { skip: skipPerl }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent();
  const calls = Object.entries(CALLS).map(
    ([name, [call]]) =>
      `$! = 0; $r = syscall(${call}); exit 0 if "${name}" =~ /clone as/ && $r == 0; printf("%s %d\\n", "${name}", $r < 0 ? $! : 0);`,
  );
  const { lines } = await machine.run(runtime, withPerl('a', `$| = 1; ${calls.join('\n')}`));
  t.same(
    lines,
    Object.entries(CALLS).map(([name, [, errno]]) => `${name} ${errno}`),
  );
});

t.test('leaving a chroot leads to the root of the container, and no further', { skip: skipPerl }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent();
  const script = `mkdir "/tmp/in"; chroot("/tmp/in") or die "chroot: $!"; chdir("..") for 1 .. 64; chroot(".") or die;
    print -e "/bin/busybox" ? "own\\n" : "lost\\n"; print -e "/etc/debian_version" || -e "/root" ? "escaped\\n" : "held\\n";`;
  const { lines } = await machine.run(runtime, withPerl('a', script));
  t.same(lines, ['own', 'held']);
});

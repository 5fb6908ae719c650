import t from 'tap';
import type { ContainerSpec } from '../../../../lib/agent/containers/container.ts';
import { buildOciConfig, buildOciProcess } from '../../../../lib/agent/containers/oci/oci-config.ts';
import { buildSeccomp } from '../../../../lib/agent/containers/oci/seccomp.ts';

type Config = ReturnType<typeof buildOciConfig>;
type Place = Parameters<typeof buildOciConfig>[1];

const spec: ContainerSpec = {
  id: 'a',
  hostname: 'web.example',
  root: { layers: ['/layers/base'], isReadOnly: false },
  process: { args: ['/bin/serve', '--all'], env: { TOKEN: 'a=b' }, directory: '/srv', uid: 0, gid: 0 },
  limits: { memoryBytes: 64_000_000, cpuPercent: 150, processes: 32 },
  mounts: [],
  nics: [],
  resolvers: [],
  metadata: {},
  log: { maxBytes: 1_000_000, maxFiles: 2 },
};
const place: Place = {
  root: '/data/all/a/root',
  files: { '/etc/hosts': '/data/all/a/hosts' },
  uidRange: { first: 300_000, count: 1_000 },
  architecture: 'x64',
  cgroup: '/cnapi/a.1',
  limitsSwap: true,
  maxOpenFiles: 20_000,
};
const user = { ...spec.process, uid: 10, gid: 20 };
const data = { source: '/srv/data', target: '/data', isReadOnly: true };

const rows: [string, Partial<ContainerSpec>, Partial<Place>, (config: Config) => unknown, unknown][] = [
  ['the program', {}, {}, ({ process }) => process.args, ['/bin/serve', '--all']],
  ['its directory', {}, {}, ({ process }) => process.cwd, '/srv'],
  ['its user', { process: user }, {}, ({ process }) => process.user, { uid: 10, gid: 20 }],
  ['a PATH if there is none', {}, {}, ({ process }) => process.env, [/^PATH=.*:\/bin$/, 'TOKEN=a=b']],
  ['no second PATH', { process: { ...user, env: { PATH: '/x' } } }, {}, ({ process }) => process.env, ['PATH=/x']],
  ['no new privileges', {}, {}, ({ process }) => process.noNewPrivileges, true],
  [
    'no effective capabilities of a user',
    { process: user },
    {},
    ({ process }) => process.capabilities.effective,
    undefined,
  ],
  ['few open files', {}, {}, ({ process }) => process.rlimits, [{ type: 'RLIMIT_NOFILE', soft: 20_000, hard: 20_000 }]],
  ['at most 65,536 of them', {}, { maxOpenFiles: 1e6 }, ({ process }) => process.rlimits[0]?.hard, 65_536],
  ['the host name', {}, {}, ({ hostname }) => hostname, 'web.example'],
  ['its root', {}, {}, ({ root }) => root, { path: '/data/all/a/root', readonly: false }],
  ['a read-only root', { root: { layers: [], isReadOnly: true } }, {}, ({ root }) => root.readonly, true],
  [
    'every namespace',
    {},
    {},
    ({ linux }) => linux.namespaces.map(({ type }) => type),
    ['pid', 'ipc', 'uts', 'mount', 'network', 'user', 'cgroup'],
  ],
  ['ids of the range', {}, {}, ({ linux }) => linux.uidMappings, [{ containerID: 0, hostID: 300_000, size: 1_000 }]],
  ['groups of the range', {}, {}, ({ linux }) => linux.gidMappings, [{ containerID: 0, hostID: 300_000, size: 1_000 }]],
  ['its control group', {}, {}, ({ linux }) => linux.cgroupsPath, '/cnapi/a.1'],
  [
    'the limits',
    {},
    {},
    ({ linux }) => linux.resources,
    {
      devices: [{ allow: false, access: 'rwm' }],
      memory: { limit: 64_000_000, swap: 64_000_000 },
      cpu: { period: 100_000, quota: 150_000 },
      pids: { limit: 32 },
    },
  ],
  [
    'no limit of swap where there is none',
    {},
    { limitsSwap: false },
    ({ linux }) => linux.resources?.memory,
    { limit: 64_000_000 },
  ],
  [
    'no limits without a group',
    {},
    { cgroup: undefined },
    ({ linux }) => [linux.cgroupsPath, linux.resources],
    [undefined, undefined],
  ],
  [
    'a generated file',
    {},
    {},
    ({ mounts }) => mounts.find(({ destination }) => destination === '/etc/hosts'),
    { type: 'bind', source: '/data/all/a/hosts', options: ['bind', 'nosuid', 'nodev', 'private', 'rw'] },
  ],
  [
    'a directory of the machine',
    { mounts: [data] },
    {},
    ({ mounts }) => mounts.at(-1),
    { destination: '/data', source: '/srv/data', options: ['bind', 'nosuid', 'nodev', 'private', 'ro'] },
  ],
  [
    'system directories only once, /sys read-only',
    {},
    {},
    ({ mounts }) =>
      mounts
        .filter(({ type }) => type !== 'bind')
        .map(({ destination, options }) => `${destination} ${options.includes('ro')}`),
    ['/proc false', '/dev false', '/dev/pts false', '/dev/shm false', '/dev/mqueue false', '/sys true'],
  ],
];

for (const [name, specChange, placeChange, look, expected] of rows)
  t.test(`the configuration has ${name}`, async (t) => {
    const found = look(buildOciConfig({ ...spec, ...specChange }, { ...place, ...placeChange }));
    if (expected === undefined) t.equal(found, undefined);
    else t.match(found, expected);
    if (Array.isArray(expected)) t.equal((found as unknown[]).length, expected.length);
  });

t.test('no configuration has hooks, devices, or dangerous capabilities', async (t) => {
  const config = buildOciConfig(spec, place);
  t.notOk('hooks' in config || 'devices' in config.linux);
  const dangerous = ['SYS_ADMIN', 'NET_ADMIN', 'NET_RAW', 'MKNOD', 'SYS_PTRACE', 'SYS_MODULE', 'SYS_TIME', 'BPF'];
  const { bounding, effective = [], permitted = [] } = buildOciProcess(spec.process, 1_000).capabilities;
  for (const name of dangerous) t.notOk([...bounding, ...effective, ...permitted].includes(`CAP_${name}`), name);
});

t.test('the allow list of system calls has each name once, and none that leads out', async (t) => {
  for (const [architecture, name] of [
    ['x64', 'SCMP_ARCH_X86_64'],
    ['arm64', 'SCMP_ARCH_AARCH64'],
  ] as const) {
    const { architectures, defaultAction, syscalls } = buildSeccomp(architecture);
    t.same([architectures, defaultAction], [[name], 'SCMP_ACT_ERRNO']);
    const allowed = syscalls.filter((rule) => rule.action === 'SCMP_ACT_ALLOW' && !('args' in rule));
    const names = allowed.flatMap((rule) => rule.names);
    t.equal(new Set(names).size, names.length);
    t.notOk(names.includes(''));
    const denied =
      'clone clone3 unshare setns mount umount2 fsopen fsmount move_mount open_tree pivot_root bpf keyctl add_key request_key ptrace ' +
      'process_vm_readv process_vm_writev kcmp pidfd_getfd userfaultfd io_uring_setup io_uring_enter kexec_load kexec_file_load ' +
      'init_module finit_module delete_module perf_event_open open_by_handle_at name_to_handle_at reboot swapon settimeofday ' +
      'clock_settime quotactl syslog acct iopl ioperm fanotify_init lookup_dcookie socket personality prctl sethostname';
    for (const call of denied.split(' ')) t.notOk(names.includes(call), call);
  }
});

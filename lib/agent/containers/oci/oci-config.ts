/**
 * Pure. The configuration of a container for the OCI runtime (runtime-spec 1.0.2, config.json):
 * what its processes see, may do and may use. Root inside is an ordinary user of the machine, and
 * nothing here gives a way to become more: no new privileges, few capabilities, an allow list of
 * system calls, no devices but the harmless ones that the runtime makes by itself, and no hooks.
 */
import type { ContainerProcess, ContainerSpec } from '../container.ts';
import { type Architecture, buildSeccomp } from './seccomp.ts';

/** User and group ids of the machine that stand for 0 and up inside. */
export interface UidRange {
  first: number;
  count: number;
}

/** What is the same for all containers of a machine. */
export interface MachineFacts {
  uidRange: UidRange;
  architecture: Architecture;
  /** Whether swap can be limited together with memory. */
  limitsSwap: boolean;
  /** No process of the agent may open more. */
  maxOpenFiles: number;
}

/** What the specification of a container does not say. */
interface OciOptions extends MachineFacts {
  /** The root file system. */
  root: string;
  /** Files of the machine that are bound to these places inside. */
  files: Readonly<Record<string, string>>;
  /**
   * Path of the control group in the form of the OCI runtime; undefined if limits cannot be set
   * here.
   */
  cgroup: string | undefined;
}

/**
 * Docker's capabilities without AUDIT_WRITE, MKNOD and NET_RAW. They hold inside the user namespace
 * only. SYS_CHROOT stays because servers such as sshd separate privileges by it.
 */
const CAPABILITIES = [
  'CAP_CHOWN',
  'CAP_DAC_OVERRIDE',
  'CAP_FOWNER',
  'CAP_FSETID',
  'CAP_KILL',
  'CAP_NET_BIND_SERVICE',
  'CAP_SETFCAP',
  'CAP_SETGID',
  'CAP_SETPCAP',
  'CAP_SETUID',
  'CAP_SYS_CHROOT',
];

const NAMESPACES = ['pid', 'ipc', 'uts', 'mount', 'network', 'user', 'cgroup'];

/** These files contain facts about the machine or its other containers. */
const MASKED = [
  '/proc/acpi',
  '/proc/asound',
  '/proc/interrupts',
  '/proc/kcore',
  '/proc/keys',
  '/proc/latency_stats',
  '/proc/sched_debug',
  '/proc/scsi',
  '/proc/timer_list',
  '/proc/timer_stats',
  '/sys/dev/block',
  '/sys/devices/virtual/powercap',
  '/sys/firmware',
  '/sys/fs/selinux',
];
const READ_ONLY = ['/proc/bus', '/proc/fs', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger'];

const SAFE = ['nosuid', 'noexec', 'nodev'];
const SYSTEM_MOUNTS = [
  { destination: '/proc', type: 'proc', source: 'proc', options: SAFE },
  {
    destination: '/dev',
    type: 'tmpfs',
    source: 'tmpfs',
    options: ['nosuid', 'strictatime', 'mode=755', 'size=65536k'],
  },
  {
    destination: '/dev/pts',
    type: 'devpts',
    source: 'devpts',
    options: ['nosuid', 'noexec', 'newinstance', 'ptmxmode=0666', 'mode=0620', 'gid=5'],
  },
  { destination: '/dev/shm', type: 'tmpfs', source: 'shm', options: [...SAFE, 'mode=1777', 'size=65536k'] },
  { destination: '/dev/mqueue', type: 'mqueue', source: 'mqueue', options: SAFE },
  { destination: '/sys', type: 'sysfs', source: 'sysfs', options: [...SAFE, 'ro'] },
];

const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const CPU_PERIOD_US = 100_000;
const OPEN_FILES = 65_536;

export function buildOciConfig(spec: ContainerSpec, options: OciOptions) {
  const { root, files, uidRange, architecture, cgroup } = options;
  const mapping = [{ containerID: 0, hostID: uidRange.first, size: uidRange.count }];
  return {
    ociVersion: '1.0.2',
    hostname: spec.hostname,
    root: { path: root, readonly: spec.root.isReadOnly },
    process: buildOciProcess(spec.process, options.maxOpenFiles),
    mounts: [
      ...SYSTEM_MOUNTS,
      ...Object.entries(files).map(([target, source]) => bind({ source, target, isReadOnly: false })),
      ...spec.mounts.map(bind),
    ],
    linux: {
      namespaces: NAMESPACES.map((type) => ({ type })),
      uidMappings: mapping,
      gidMappings: mapping,
      ...(cgroup === undefined ? {} : { cgroupsPath: cgroup, resources: resourcesOf(spec, options) }),
      rootfsPropagation: 'private',
      maskedPaths: MASKED,
      readonlyPaths: READ_ONLY,
      seccomp: buildSeccomp(architecture),
    },
  };
}

/** The process of the container, and each that is run in it later. */
export function buildOciProcess(
  { args, env, directory, uid, gid, hasTerminal = false }: OciProcess,
  maxOpenFiles: number,
) {
  const files = Math.min(OPEN_FILES, maxOpenFiles);
  return {
    terminal: hasTerminal,
    user: { uid, gid },
    args,
    env: Object.entries({ PATH, ...env }).map(([name, value]) => `${name}=${value}`),
    cwd: directory,
    // Another user gets none: of root's capabilities only the bounding set remains for it.
    capabilities: {
      bounding: CAPABILITIES,
      ...(uid === 0 ? { effective: CAPABILITIES, permitted: CAPABILITIES } : {}),
    },
    rlimits: [{ type: 'RLIMIT_NOFILE', soft: files, hard: files }],
    noNewPrivileges: true,
  };
}

type OciProcess = Omit<ContainerProcess, 'hasTerminal'> & { hasTerminal?: boolean | undefined };

const resourcesOf = (spec: ContainerSpec, options: OciOptions) => ({
  devices: [{ allow: false, access: 'rwm' }],
  ...buildOciLimits(spec, options),
});

/** Limits in the form of the OCI runtime, for a new container and for one that runs. */
export function buildOciLimits({ limits }: Pick<ContainerSpec, 'limits'>, { limitsSwap }: { limitsSwap: boolean }) {
  return {
    memory: { limit: limits.memoryBytes, ...(limitsSwap ? { swap: limits.memoryBytes } : {}) },
    cpu: { period: CPU_PERIOD_US, quota: Math.round((limits.cpuPercent * CPU_PERIOD_US) / 100) },
    pids: { limit: limits.processes },
  };
}

function bind({ source, target, isReadOnly }: { source: string; target: string; isReadOnly: boolean }) {
  const options = ['bind', 'nosuid', 'nodev', 'private', isReadOnly ? 'ro' : 'rw'];
  return { destination: target, type: 'bind', source, options };
}

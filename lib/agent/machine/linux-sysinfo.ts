/**
 * Sysinfo of a Linux machine, under Triton's key names where Linux has an equivalent.
 * Numbers are strings where Triton's CNAPI has strings. All reads are asynchronous; values that
 * cannot be read are left out.
 */
import { readdir, readlink } from 'node:fs/promises';
import { hostname, type NetworkInterfaceInfo, networkInterfaces, release, type as systemType } from 'node:os';
import {
  allowedWorkSysinfo,
  type Sysinfo,
  type TaskAddress,
  type ToldWork,
  TRITON_AGENTS,
  taskAddressSysinfo,
} from './machine.ts';
import { readTextFile } from './read-text-file.ts';

const BYTES_PER_GB = 1e9;
const SECTOR_BYTES = 512;
const KIB_PER_MIB = 1024;

interface SysinfoOf {
  uuid: string;
  agentVersion: string;
  taskAddress?: TaskAddress | undefined;
  /** Override those of the kernel's command line. */
  bootParameters?: Record<string, string> | undefined;
  /** Seconds since the epoch. */
  bootTime?: string | undefined;
  /** Whether containers can run here, as a sentence. */
  containers?: string | undefined;
  allows?: ToldWork;
  /** Replaces what is said without packages. */
  packages?: Sysinfo | undefined;
}

export async function readSysinfo(server: SysinfoOf): Promise<Sysinfo> {
  const [facts, cpuinfo, mib, interfaces, disks, commandLine] = await Promise.all([
    readProductFacts(),
    readTextFile('/proc/cpuinfo'),
    readMemoryMib(),
    readInterfaces(),
    readDisks(),
    readTextFile('/proc/cmdline'),
  ]);
  return {
    UUID: server.uuid,
    Hostname: hostname(),
    'System Type': systemType(),
    'Live Image': release(),
    ...(server.bootTime === undefined ? {} : { 'Boot Time': server.bootTime }),
    ...(mib === undefined ? {} : { 'MiB of Memory': mib }),
    ...parseCpuinfo(cpuinfo ?? ''),
    ...facts,
    Disks: disks,
    'Network Interfaces': interfaces,
    'Virtual Network Interfaces': {},
    'Link Aggregations': {},
    'Boot Parameters': { ...parseBootParameters(commandLine ?? ''), ...server.bootParameters },
    'SDC Agents': TRITON_AGENTS,
    Setup: 'true',
    'CN Agent Version': server.agentVersion,
    ...taskAddressSysinfo(server.taskAddress),
    ...(server.containers === undefined ? {} : { Containers: server.containers }),
    ...allowedWorkSysinfo(server.allows),
    ...server.packages,
  };
}

const MAX_BOOT_PARAMETERS = 200;
const MAX_BOOT_PARAMETER_CHARS = 1000;

/**
 * Parses /proc/cmdline: `name=value`, the value `true` if there is none, quotes around either. Text
 * after ` -- ` is for the first process and is not a boot parameter.
 */
export function parseBootParameters(commandLine: string): Record<string, string> {
  const [parameters = ''] = commandLine.trim().split(/(?:^|\s)--(?:\s|$)/, 1);
  const words = parameters.match(/(?:[^\s"]|"[^"]*")+/g) ?? [];
  const pairs = words.slice(0, MAX_BOOT_PARAMETERS).map((word) => {
    const [name = '', ...value] = word.replaceAll('"', '').slice(0, MAX_BOOT_PARAMETER_CHARS).split('=');
    return [name, value.length === 0 ? 'true' : value.join('=')] as const;
  });
  return Object.fromEntries(pairs);
}

const PRODUCT_FILES = {
  Manufacturer: 'sys_vendor',
  Product: 'product_name',
  'Product Family': 'product_family',
  'SKU Number': 'product_sku',
  'HW Version': 'product_version',
  'HW Family': 'product_family',
  'Serial Number': 'product_serial',
} as const;

async function readProductFacts(): Promise<Sysinfo> {
  const facts = await Promise.all(
    Object.entries(PRODUCT_FILES).map(
      async ([key, file]) => [key, await readLine(`/sys/class/dmi/id/${file}`)] as const,
    ),
  );
  return Object.fromEntries(facts.filter(([, value]) => value !== undefined && value !== ''));
}

/**
 * Cores are counted by socket and core id. If the kernel does not report those, each processor
 * counts as one.
 */
export function parseCpuinfo(text: string): Sysinfo {
  const processors = text.split(/\n\s*\n/).filter((block) => /^processor\s*:/m.test(block));
  const field = (block: string, name: string) => new RegExp(`^${name}\\s*:\\s*(.*)$`, 'm').exec(block)?.[1];
  const first = processors[0] ?? '';
  const sockets = new Set(processors.map((block) => field(block, 'physical id') ?? '0'));
  const cores = new Set(
    processors.map((block, index) => `${field(block, 'physical id')}/${field(block, 'core id') ?? index}`),
  );
  const flags = field(first, 'flags') ?? '';
  return {
    'CPU Type': field(first, 'model name') ?? 'unknown',
    'CPU Virtualization': flags.includes('vmx') ? 'vmx' : flags.includes('svm') ? 'svm' : 'none',
    'CPU Physical Cores': sockets.size,
    'CPU Core Count': cores.size,
    'CPU Total Cores': processors.length,
    'CPU Online Count': processors.length,
    'CPU Count': sockets.size,
  };
}

async function readMemoryMib(): Promise<string | undefined> {
  const kib = memoryField((await readTextFile('/proc/meminfo')) ?? '', 'MemTotal');
  return kib === undefined ? undefined : String(Math.floor(kib / KIB_PER_MIB));
}

/** A field of /proc/meminfo, in KiB. */
export function memoryField(meminfo: string, name: string): number | undefined {
  const value = new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(meminfo)?.[1];
  return value === undefined ? undefined : Number(value);
}

/**
 * The machine's network cards and bonds. Interfaces that exist only inside the kernel are left out,
 * unless there are no others.
 */
async function readInterfaces(): Promise<Record<string, Sysinfo>> {
  const addresses = networkInterfaces();
  const names = (await readdir('/sys/class/net').catch(() => [])).filter((name) => name !== 'lo');
  const virtual = await Promise.all(names.map(isVirtual));
  const physical = names.filter((_, index) => !virtual[index]);
  const chosen = physical.length > 0 ? physical : names;
  const described = await Promise.all(
    chosen.map(async (name) => [name, await describeInterface(name, addresses[name])] as const),
  );
  return Object.fromEntries(described);
}

async function isVirtual(name: string): Promise<boolean> {
  return (await readlink(`/sys/class/net/${name}`).catch(() => '')).includes('/virtual/');
}

async function describeInterface(name: string, addresses: NetworkInterfaceInfo[] | undefined): Promise<Sysinfo> {
  const [mac, state] = await Promise.all([
    readLine(`/sys/class/net/${name}/address`),
    readLine(`/sys/class/net/${name}/operstate`),
  ]);
  const ip4 = addresses?.find(({ family }) => family === 'IPv4');
  return {
    'MAC Address': mac ?? '',
    ip4addr: ip4?.address ?? '',
    netmask: ip4?.netmask ?? '',
    'Link Status': state === 'down' ? 'down' : 'up',
    'NIC Names': [],
  };
}

async function readDisks(): Promise<Record<string, Sysinfo>> {
  const names = await readdir('/sys/block').catch(() => []);
  const disks = await Promise.all(
    names
      .filter((name) => !/^(loop|ram|zram|dm-|md|sr|fd)/.test(name))
      .map(async (name) => [name, Number(await readLine(`/sys/block/${name}/size`)) * SECTOR_BYTES] as const),
  );
  const real = disks.filter(([, bytes]) => bytes > 0);
  return Object.fromEntries(real.map(([name, bytes]) => [name, { 'Size in GB': Math.round(bytes / BYTES_PER_GB) }]));
}

async function readLine(path: string): Promise<string | undefined> {
  return (await readTextFile(path))?.split('\n')[0]?.trim();
}

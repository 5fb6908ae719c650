/**
 * Plausible sysinfo of a simulated machine: small, or as large as that of a big server (about 40
 * KB). Pure.
 */
import { TRITON_AGENTS } from '../machine/machine.ts';

export type SysinfoSize = 'small' | 'real';

interface SimulatedServer {
  serverUuid: string;
  number: number;
  agentVersion: string;
  sysinfoSize: SysinfoSize;
  /** Wall-clock time in milliseconds. */
  bootedAt: number;
}

const VNICS_OF_A_BIG_SERVER = 150;

export const simulatedHostname = (number: number): string => `node-${number}`;

export function simulatedSysinfo({
  serverUuid,
  number,
  agentVersion,
  sysinfoSize,
  bootedAt,
}: SimulatedServer): Record<string, unknown> {
  const address = `10.${(number >> 16) & 255}.${(number >> 8) & 255}.${number & 255}`;
  return {
    UUID: serverUuid,
    Hostname: simulatedHostname(number),
    'System Type': 'Linux',
    'Live Image': '6.12.0-stand-in',
    'Boot Time': String(Math.floor(bootedAt / 1000)),
    'MiB of Memory': '65536',
    'CPU Type': 'Stand-in CPU',
    'CPU Virtualization': 'vmx',
    'CPU Physical Cores': 2,
    'CPU Core Count': 16,
    'CPU Total Cores': 32,
    'CPU Online Count': 32,
    'CPU Count': 2,
    Manufacturer: 'cnapi',
    Product: 'Stand-in',
    'Serial Number': `S${String(number).padStart(7, '0')}`,
    Disks: { sda: { 'Size in GB': 1000 }, sdb: { 'Size in GB': 1000 } },
    'Network Interfaces': {
      eth0: {
        'MAC Address': macOf(number),
        ip4addr: address,
        netmask: '255.0.0.0',
        'Link Status': 'up',
        'NIC Names': ['admin'],
      },
    },
    'Virtual Network Interfaces': sysinfoSize === 'small' ? {} : vnics(number),
    'Link Aggregations': {},
    'Boot Parameters': {},
    'SDC Agents': TRITON_AGENTS,
    Setup: 'true',
    'CN Agent Version': agentVersion,
  };
}

function vnics(number: number): Record<string, unknown> {
  const one = (index: number) => ({
    'MAC Address': macOf(number * 1000 + index),
    ip4addr: `172.${16 + (index % 16)}.${number & 255}.${index & 255}`,
    'Link Status': 'up',
    'Host Interface': 'eth0',
    Overlay: 'internal',
    VLAN: String(2 + (index % 4000)),
    zone: `zone-${number}-${index}`,
    'NIC Names': ['internal'],
    'VM state': 'running, as of the last look of this stand-in at its virtual machines',
  });
  return Object.fromEntries(Array.from({ length: VNICS_OF_A_BIG_SERVER }, (_, index) => [`net${index}`, one(index)]));
}

function macOf(number: number): string {
  const bytes = [2, 0, 0, (number >> 16) & 255, (number >> 8) & 255, number & 255];
  return bytes.map((byte) => byte.toString(16).padStart(2, '0')).join(':');
}

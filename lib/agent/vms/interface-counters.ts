/** What the interfaces of a VM have carried, from /proc/PID/net/dev of one of its processes. */
import type { InterfaceCounters } from '../../protocol/streams/vm-sample.ts';
import { readTextFile } from '../machine/read-text-file.ts';

const LOOPBACK = 'lo';
const RECEIVED = 8;
const COLUMNS = 16;
const MAX_INTERFACES = 64;

/** Undefined if the VM has no process. */
export async function readInterfaces(
  processes: () => Promise<readonly number[]>,
): Promise<Record<string, InterfaceCounters> | undefined> {
  const [pid] = await processes();
  if (pid === undefined) return undefined;
  const text = await readTextFile(`/proc/${pid}/net/dev`);
  // The number may be that of another process by now, with the interfaces of the machine.
  return text === undefined || !(await processes()).includes(pid) ? undefined : parseInterfaces(text);
}

/** The lines of net/dev after its two of headings. The loopback interface is left out. */
export function parseInterfaces(text: string): Record<string, InterfaceCounters> {
  const found = text.split('\n').flatMap((line) => {
    const [name = '', columns = ''] = line.split(':', 2).map((part) => part.trim());
    const counters = columns.split(/\s+/).map(Number);
    if (name === LOOPBACK || counters.length < COLUMNS || counters.some(Number.isNaN)) return [];
    const [rx_bytes = 0, rx_packets = 0, rx_errors = 0, rx_dropped = 0] = counters;
    const [tx_bytes = 0, tx_packets = 0, tx_errors = 0, tx_dropped = 0] = counters.slice(RECEIVED);
    const sent = { tx_bytes, tx_packets, tx_errors, tx_dropped };
    return [[name, { rx_bytes, rx_packets, rx_errors, rx_dropped, ...sent }] as const];
  });
  return Object.fromEntries(found.slice(0, MAX_INTERFACES));
}

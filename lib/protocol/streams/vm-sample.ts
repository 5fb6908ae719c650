/** One line of the stream of the task `vm_stats`: what a VM uses now, as JSON. */
import { z } from 'zod';

const count = z.number().min(0);

const interfaceCounters = z.object({
  rx_bytes: count,
  rx_packets: count,
  rx_errors: count,
  rx_dropped: count,
  tx_bytes: count,
  tx_packets: count,
  tx_errors: count,
  tx_dropped: count,
});
export type InterfaceCounters = z.infer<typeof interfaceCounters>;

export const vmSample = z.object({
  /** Time of the sample by the server's wall clock, in ISO 8601. */
  at: z.string(),
  /** Time of the sample by a monotonic clock of the agent. Only differences have a meaning. */
  clock_ms: count,
  memory_bytes: count,
  memory_limit_bytes: count,
  /** Processor time since the start of the VM. */
  cpu_us: count,
  processes: count,
  processes_limit: count,
  /**
   * Counters of each interface by name, without the loopback interface; absent if they cannot be
   * read.
   */
  interfaces: z.record(z.string(), interfaceCounters).optional(),
});
export type VmSample = z.infer<typeof vmSample>;

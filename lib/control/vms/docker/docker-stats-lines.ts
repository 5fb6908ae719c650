/**
 * The lines that Triton's clients of `docker-stats` read, once a second: JSON objects in the form
 * of the Docker API, which end with CR LF. Each is made of two samples of the agent, since clients
 * compute what a VM uses from what has changed. What this project does not know is left out. Pure.
 */
import { CHANNELS, channelIn, jsonIn } from '../../../protocol/streams/stream.ts';
import { type InterfaceCounters, type VmSample, vmSample } from '../../../protocol/streams/vm-sample.ts';
import type { PortCodec } from './port-codec.ts';

/** The first version of the Docker API in which each interface has its own counters. */
const API_WITH_NETWORKS = 1.21;
const MAX_LINE_CHARS = 64 * 1024;
const NS_PER_US = 1000;
const NS_PER_MS = 1_000_000;
const BLOCK_STATS = [
  'io_service_bytes_recursive',
  'io_serviced_recursive',
  'io_queue_recursive',
  'io_service_time_recursive',
  'io_wait_time_recursive',
  'io_merged_recursive',
  'io_time_recursive',
  'sectors_recursive',
];

export class DockerStatsLines implements PortCodec {
  readonly isWhole = true;
  readonly #apiVersion: number;
  readonly #decoder = new TextDecoder();
  #begun = '';
  #last: VmSample | undefined;

  constructor(apiVersion: number) {
    this.#apiVersion = apiVersion;
  }

  read(): Buffer[] {
    return [];
  }

  end(): Buffer[] {
    return [];
  }

  write(message: Buffer): string {
    if (channelIn(message) !== CHANNELS.stdout) return '';
    const lines = (this.#begun + this.#decoder.decode(message.subarray(1), { stream: true })).split('\n');
    this.#begun = (lines.pop() ?? '').slice(0, MAX_LINE_CHARS);
    return lines.map((line) => this.#lineOf(line)).join('');
  }

  #lineOf(line: string): string {
    const sample = jsonIn(vmSample, line);
    if (sample === undefined) return '';
    const before = this.#last;
    this.#last = sample;
    return before === undefined ? '' : `${JSON.stringify(statsOf(sample, before, this.#apiVersion))}\r\n`;
  }
}

function statsOf(sample: VmSample, before: VmSample, apiVersion: number): Record<string, unknown> {
  const { at, memory_bytes, memory_limit_bytes, processes, processes_limit, interfaces = {} } = sample;
  return {
    read: at,
    preread: before.at,
    cpu_stats: cpuOf(sample),
    precpu_stats: cpuOf(before),
    memory_stats: { usage: memory_bytes, limit: memory_limit_bytes, stats: {} },
    pids_stats: { current: processes, limit: processes_limit },
    blkio_stats: Object.fromEntries(BLOCK_STATS.map((name) => [name, []])),
    ...(apiVersion >= API_WITH_NETWORKS ? { networks: interfaces } : { network: sumOf(Object.values(interfaces)) }),
  };
}

/**
 * Clients divide by the change of `system_cpu_usage`, and multiply by the number of processors in
 * `percpu_usage`. As in the reference, that is one, whose time is that of the clock: 100 % is one
 * processor.
 */
function cpuOf({ cpu_us, clock_ms }: VmSample): Record<string, unknown> {
  const total_usage = Math.round(cpu_us * NS_PER_US);
  return {
    cpu_usage: { total_usage, percpu_usage: [total_usage], usage_in_kernelmode: 0, usage_in_usermode: 0 },
    system_cpu_usage: Math.round(clock_ms * NS_PER_MS),
    throttling_data: { periods: 0, throttled_periods: 0, throttled_time: 0 },
  };
}

function sumOf(counters: readonly InterfaceCounters[]): InterfaceCounters {
  const total = {
    rx_bytes: 0,
    rx_packets: 0,
    rx_errors: 0,
    rx_dropped: 0,
    tx_bytes: 0,
    tx_packets: 0,
    tx_errors: 0,
    tx_dropped: 0,
  };
  for (const one of counters)
    for (const name of Object.keys(total) as (keyof InterfaceCounters)[]) total[name] += one[name];
  return total;
}

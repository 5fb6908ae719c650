/** Describes the machine of the benchmark, for later readers of its numbers. */
import os from 'node:os';

export interface Machine {
  cpu: string;
  cores: number;
  memoryGb: number;
  system: string;
  node: string;
  postgres: string;
  bus: 'redis' | 'postgres';
}

export function describeMachine({ postgres, bus }: Pick<Machine, 'postgres' | 'bus'>): Machine {
  const cpus = os.cpus();
  return {
    cpu: cpus[0]?.model.trim() || 'unknown CPU',
    cores: cpus.length,
    memoryGb: Math.round(os.totalmem() / 2 ** 30),
    system: `${os.type()} ${os.release()}`,
    node: process.versions.node,
    postgres,
    bus,
  };
}

/** Average of the last minute. */
export const loadAverage = (): number => os.loadavg()[0] ?? 0;

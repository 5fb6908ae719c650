/**
 * CLOCK_MONOTONIC in milliseconds: one clock for all processes of this machine, so that a moment told by one process can be
 * compared with a moment told by another. For the benchmark only; the product compares no clocks.
 */
// biome-ignore lint/plugin: no port has a clock that several processes share, and the product wants none.
export const machineMs = (): number => Number(process.hrtime.bigint()) / 1e6;

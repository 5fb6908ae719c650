/**
 * CLOCK_MONOTONIC in milliseconds: one clock for all processes of this machine, so that times of
 * different processes can be compared. For the benchmark only; the product compares no clocks of
 * different processes.
 */
// biome-ignore lint/plugin: no port has a clock that several processes share, nor wants one
export const machineMs = (): number => Number(process.hrtime.bigint()) / 1e6;

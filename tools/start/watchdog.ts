/**
 * The program that outlives the supervisor by a few seconds. Its stdin is a pipe from the
 * supervisor, which writes the whole list of processes to end, one JSON line each time. When the
 * pipe ends for any reason, the watchdog ends the processes of the latest list in order, and then
 * exits. It ignores signals.
 */
import { createInterface } from 'node:readline';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { type Ending, endInOrder } from './end-processes.ts';

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGPIPE'] as const) process.on(signal, () => undefined);

let latest: Ending[] = [];
for await (const line of createInterface({ input: process.stdin })) latest = JSON.parse(line) as Ending[];
await endInOrder(latest, systemClock);
process.exit(0);

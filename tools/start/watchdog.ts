/**
 * The program that outlives the supervisor by a few seconds. Its stdin is a pipe from the supervisor, which tells it, a
 * JSON line each, the whole list of processes to end; when the pipe ends for whatever reason, it ends the latest list in
 * order, and then itself. Signals do not concern it.
 */
import { createInterface } from 'node:readline';
import { systemClock } from '../../lib/ports/clock.ts';
import { type Ending, endInOrder } from './ending.ts';

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGPIPE'] as const) process.on(signal, () => undefined);

let latest: Ending[] = [];
for await (const line of createInterface({ input: process.stdin })) latest = JSON.parse(line) as Ending[];
await endInOrder(latest, systemClock);
process.exit(0);

/**
 * Profiles of an instance's time and memory, written after the measurement (`--profiles DIR`), for
 * Chrome's developer tools.
 */
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import type { Helper } from './helper.ts';

/** Writes a CPU profile of the server during `work`, named after the server and `what`. */
export async function profileCpu(
  server: Helper,
  { folder, what, work }: { folder: string; what: string; work: () => Promise<unknown> },
): Promise<void> {
  await server.ask('startProfile');
  await work();
  await server.ask('writeProfile', { file: fileIn(folder, `${server.program.name}-${what}.cpuprofile`) });
}

/** Comparing two snapshots shows which memory was kept between them. */
export async function writeHeap(server: Helper, { folder, what }: { folder: string; what: string }): Promise<void> {
  await server.ask('writeHeap', { file: fileIn(folder, `${server.program.name}-${what}.heapsnapshot`) });
}

function fileIn(folder: string, name: string): string {
  mkdirSync(folder, { recursive: true });
  return path.resolve(folder, name);
}

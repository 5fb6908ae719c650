/** Where an instance's time and memory go, written after the measuring (`--profiles DIR`), for Chrome's developer tools. */
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import type { Helper } from './helper.ts';

/** A CPU profile of what `work` makes the server do, named after the server and `what`. */
export async function profileCpu(
  server: Helper,
  { folder, what, work }: { folder: string; what: string; work: () => Promise<unknown> },
): Promise<void> {
  await server.ask('startProfile');
  await work();
  await server.ask('writeProfile', { file: fileIn(folder, `${server.program.name}-${what}.cpuprofile`) });
}

/** Two of them, compared, show what is kept of that by which they differ. */
export async function writeHeap(server: Helper, { folder, what }: { folder: string; what: string }): Promise<void> {
  await server.ask('writeHeap', { file: fileIn(folder, `${server.program.name}-${what}.heapsnapshot`) });
}

function fileIn(folder: string, name: string): string {
  mkdirSync(folder, { recursive: true });
  return path.resolve(folder, name);
}

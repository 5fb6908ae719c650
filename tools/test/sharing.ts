/**
 * Which test files run in one process. A process of its own costs the start of Node and the load of
 * the project's modules: for most files that is more than their tests take (file-tests.ts).
 */
import path from 'node:path';
import { COMPUTING } from './lanes.ts';
import { LONGEST } from './order.ts';

/** So many that the start counts little, and so few that the groups fill the cores to the end. */
const FILES_IN_ONE = 10;

const ALONE = [...LONGEST, ...COMPUTING];

/** Groups of files, each for one process; the files that run alone first, all in their order. */
export function processesOf(files: readonly string[]): string[][] {
  const sharing = files.filter(mayShare);
  const alone = files.filter((file) => !mayShare(file)).map((file) => [file]);
  const groups = Array.from({ length: Math.ceil(sharing.length / FILES_IN_ONE) }, (_, index) =>
    sharing.slice(index * FILES_IN_ONE, (index + 1) * FILES_IN_ONE),
  );
  return [...alone, ...groups];
}

function mayShare(file: string): boolean {
  return path.matchesGlob(file, 'test/**') && !ALONE.some((pattern) => path.matchesGlob(file, pattern));
}

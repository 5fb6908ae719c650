import { readFile } from 'node:fs/promises';

/** Undefined if the file cannot be read, for example because this kernel does not have it. */
export function readTextFile(path: string): Promise<string | undefined> {
  return readFile(path, 'utf8').catch(() => undefined);
}

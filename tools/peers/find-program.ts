/** Programs of peers that a package of the distribution brings. */
import path from 'node:path';
import { isExecutable } from '../processes/executable.ts';

/** Debian installs servers in folders that may not be on a user's PATH. */
export function findProgram(name: string): string | undefined {
  const folders = [...(process.env.PATH ?? '').split(path.delimiter).filter(path.isAbsolute), '/usr/sbin'];
  return folders.map((folder) => path.join(folder, name)).find(isExecutable);
}

/** `debian` is the package that has it. */
export function whyNoProgram(name: string, debian: string = name): string | undefined {
  return findProgram(name) === undefined ? `there is none: on Debian, apt-get install ${debian}` : undefined;
}

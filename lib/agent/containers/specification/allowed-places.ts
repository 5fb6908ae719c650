/**
 * What of this machine containers may use, as the agent's configuration says: directories and
 * bridges. Directories are compared by their real paths, because a link in an allowed directory may
 * lead elsewhere. Whoever can write to an allowed directory can replace a part of a path with a
 * link afterwards, so what mounts a source checks it again.
 */
import { realpath, stat } from 'node:fs/promises';
import { messageOf } from '../../../platform/errors.ts';

export interface AllowedPlaces {
  /** Directories that containers may mount, each with all below it. */
  directories: readonly string[];
  /** Where layers of images are. */
  layerDirectories: readonly string[];
  bridges: readonly string[];
}

/**
 * The real path of a directory in one of these; `option` names them. The error does
 * not reveal whether a path elsewhere exists. @throws Error that says why not, and what to do
 */
export async function allowedDirectory(path: string, within: readonly string[], option: string): Promise<string> {
  const real = await Promise.all(within.map((one) => realpath(one).catch(() => undefined)));
  const allowed = real.filter((one) => one !== undefined);
  const isAllowed = (one: string) => allowed.some((directory) => isIn(one, directory));
  if (!isAllowed(path) && !within.some((directory) => isIn(path, directory)))
    throw new Error(`is not allowed by this agent; choose a directory in one of the ${option}, or add it to them`);
  const found = await realDirectory(path);
  if (isAllowed(found)) return found;
  throw new Error(`leads out of the ${option} of this agent; choose a directory in one of them, without links`);
}

async function realDirectory(path: string): Promise<string> {
  let real: string;
  try {
    real = await realpath(path);
    if ((await stat(real)).isDirectory()) return real;
  } catch (error) {
    throw new Error(`cannot be used (${messageOf(error)}); create the directory on the server first`);
  }
  throw new Error('is not a directory; name a directory');
}

const isIn = (path: string, directory: string): boolean =>
  path === directory || path.startsWith(directory === '/' ? '/' : `${directory}/`);

/**
 * Resolves the target path of a copy on this machine by the rules that RECEIVE applies at the other
 * end.
 */
import path from 'node:path';
import { RefusedError } from '../terminal/command-errors.ts';
import { OpenDirectory } from './open-directory.ts';

interface ResolvedTarget {
  /** The last directory of the path that exists. */
  base: OpenDirectory;
  /** The names of the path below `base`. The first one is not a directory. */
  missing: string[];
  /** Whether the first missing name exists as something other than a directory. */
  isTaken: boolean;
}

/** Linux follows at most this many symbolic links in a path. */
const MAX_LINKS = 40;

/** @throws RefusedError for a link that another user may change */
export async function resolveTarget(target: string): Promise<ResolvedTarget> {
  let base = await OpenDirectory.root();
  const move = async (next: OpenDirectory) => {
    await base[Symbol.asyncDispose]();
    base = next;
  };
  try {
    let rest = namesIn(path.resolve(target));
    for (let links = 0; ; ) {
      const [name, ...further] = rest;
      if (name === undefined) return { base, missing: [], isTaken: false };
      if (name === '..') {
        // The directory may have been moved since it was opened.
        rest = [...namesIn(path.dirname(base.shown)), ...further];
        await move(await OpenDirectory.root());
        continue;
      }
      const kind = await base.kindOf(name);
      if (kind === 'directory') {
        rest = further;
        await move(await base.enter(name));
      } else if (kind === 'link' && (await base.leadsToDirectory(name))) {
        links += 1;
        if (links > MAX_LINKS) throw new RefusedError(`${target}: too many symbolic links`);
        const link = await base.readLink(name);
        rest = [...namesIn(link), ...further];
        if (path.isAbsolute(link)) await move(await OpenDirectory.root());
      } else {
        if (further.includes('..')) throw new RefusedError(`${target}: there is no directory before ..`);
        return { base, missing: rest, isTaken: kind !== 'nothing' };
      }
    }
  } catch (error) {
    await base[Symbol.asyncDispose]();
    throw error;
  }
}

const namesIn = (place: string): string[] => place.split('/').filter((name) => name !== '' && name !== '.');

/** The way to the target of a copy on this machine, as RECEIVE goes it at the other end. */
import path from 'node:path';
import { RefusedError } from '../terminal/command-errors.ts';
import { OpenDirectory } from './open-directory.ts';

interface Way {
  /** The last directory that is there. */
  base: OpenDirectory;
  /** The names below it. There is no directory of the first one. */
  missing: string[];
  /** Whether there is something else of the first one. */
  isTaken: boolean;
}

/** As the system. */
const MAX_LINKS = 40;

/** @throws RefusedError for a link that another user may change */
export async function goTo(target: string): Promise<Way> {
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

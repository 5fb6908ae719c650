/** Where an agent loads an image or a package from, as users write it. */
import { pathToFileURL } from 'node:url';
import { UsageError } from '../terminal/command-errors.ts';

/** @throws UsageError unless it is a URL that agents take, or an absolute path of the server */
export function sourceUrl(source: string): string {
  if (source.startsWith('/')) return pathToFileURL(source).href;
  if (['https:', 'http:', 'file:'].includes(URL.parse(source)?.protocol ?? '')) return source;
  throw new UsageError(
    `${shownSource(source)} is neither a URL (https, http or file) nor an absolute path on the server`,
  );
}

/** Without what may be secret: the user and the password, the query and the fragment. */
export const shownSource = (source: string): string =>
  source.replace(/(:\/*).*@/s, '$1(secret)@').replace(/[?#].*/s, '?(secret)');

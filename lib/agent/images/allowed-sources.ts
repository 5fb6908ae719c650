/**
 * The sources from which the configuration allows this agent to load images: URLs with one of its
 * prefixes, and files in its directories. Without configuration, images come only from streams.
 */
import { realpath, stat } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { messageOf } from '../../platform/errors.ts';
import { ImageSourceError, ImageSourceNotAllowedError } from './image-errors.ts';

export interface AllowedSources {
  /**
   * `http:` or `https:` URLs. A path ends at a segment: `https://a/b` allows `https://a/b/c`, not
   * `https://a/bc`.
   */
  urls: readonly string[];
  directories: readonly string[];
}

/** @throws ImageSourceNotAllowedError */
export function allowedUrl(text: string, { urls }: AllowedSources): URL {
  const url = urlOf(text);
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    throw new ImageSourceNotAllowedError(`url: ${url.protocol} cannot be a source; give http:, https: or file:`);
  if (url.username !== '' || url.password !== '')
    throw new ImageSourceNotAllowedError('url: it holds a user or a password, which logs would show; remove them');
  if (urls.some((prefix) => isBelow(url, new URL(prefix)))) return url;
  throw new ImageSourceNotAllowedError(
    `url: ${url.origin} is not allowed by this agent with this path; choose an allowed one, or add --image-url`,
  );
}

/** The real path of a regular file. @throws ImageSourceNotAllowedError, ImageSourceError */
export async function allowedFile(text: string, { directories }: AllowedSources): Promise<string> {
  const path = pathOf(urlOf(text));
  const within = await Promise.all(directories.map((directory) => realpath(directory).catch(() => undefined)));
  const isAllowed = (one: string) =>
    within.some((directory) => directory !== undefined && one.startsWith(`${directory}/`));
  // Nothing is told of files elsewhere, not even whether they exist.
  const refusal =
    'url: this file is not allowed by this agent; choose one in an allowed directory, or add --image-path';
  if (!isAllowed(path) && !directories.some((directory) => path.startsWith(`${directory}/`)))
    throw new ImageSourceNotAllowedError(refusal);
  const real = await realpath(path).catch((error: unknown) => {
    throw new ImageSourceError(`url: the file cannot be read (${messageOf(error)})`, error);
  });
  if (!isAllowed(real)) throw new ImageSourceNotAllowedError(refusal);
  if (!(await stat(real)).isFile()) throw new ImageSourceError('url: not a regular file');
  return real;
}

export const isFileUrl = (text: string): boolean => /^file:/i.test(text);

/** Without what may be secret: query and fragment. */
export function shownUrl(text: string): string {
  const { origin, protocol, pathname } = urlOf(text);
  return protocol === 'file:' ? `file://${pathname}` : `${origin}${pathname}`;
}

/** @throws ImageSourceNotAllowedError */
function urlOf(text: string): URL {
  const url = URL.parse(text);
  if (url === null) throw new ImageSourceNotAllowedError('url: not a URL; give http:, https: or file:');
  return url;
}

function pathOf(url: URL): string {
  try {
    return fileURLToPath(url);
  } catch (error) {
    throw new ImageSourceNotAllowedError(`url: it names no file of this server (${messageOf(error)})`);
  }
}

/**
 * URL has normalized both: no `..`, and host names in lower case. An encoded slash separates
 * nothing for us.
 */
function isBelow(url: URL, prefix: URL): boolean {
  if (url.origin !== prefix.origin) return false;
  const path = prefix.pathname.endsWith('/') ? prefix.pathname : `${prefix.pathname}/`;
  return !/%2f|%5c|%2e/i.test(url.pathname) && (url.pathname.startsWith(path) || url.pathname === prefix.pathname);
}

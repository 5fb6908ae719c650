/**
 * Brings the file of a package to this server, from where the agent's configuration allows it. What
 * is allowed, and how a cut download continues, is as for images.
 */
import { createReadStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import { isAbsolute } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { HttpClient } from '../../platform/http-client/http-client.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { type AllowedSources, allowedFile, isFileUrl } from '../images/allowed-sources.ts';
import { download } from '../images/download.ts';
import { receiveArchive } from '../images/receive-archive.ts';

interface PackageRequest {
  /** A URL (http:, https: or file:), or the absolute path of a file of this server. */
  source: string;
  /** Where it is written. */
  file: string;
  signal: AbortSignal;
  onProgress(bytes: number, total: number | undefined): void;
}

interface PackageSourceDeps {
  clock: Clock;
  client: HttpClient;
  allowed: AllowedSources;
}

const MAX_PACKAGE_BYTES = 1024 ** 3;

/** @throws the errors of images (package-errors.ts translates them) */
export async function fetchPackage({ source, ...request }: PackageRequest, deps: PackageSourceDeps): Promise<void> {
  const url = isAbsolute(source) ? pathToFileURL(source).href : source;
  const limits = { maxBytes: MAX_PACKAGE_BYTES, onBytes: () => undefined };
  if (!isFileUrl(url)) {
    await download({ ...request, ...limits, url }, deps);
    return;
  }
  const archive = createReadStream(await allowedFile(url, deps.allowed));
  await rm(request.file, { force: true });
  await receiveArchive(archive, { ...request, ...limits, digest: undefined }, deps);
}

/**
 * Downloads the archive of an image. A cut connection is continued where it ended (`Range` with
 * `If-Range`, RFC 9110 section 13.1.5), also by the next agent: beside the file is a note of what
 * it is a part of. Each redirect must be allowed like the first URL, and so must their addresses.
 */
import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { z } from 'zod';
import { lookUpHost } from '../../platform/dns/host-lookup.ts';
import type { HttpClient } from '../../platform/http-client/http-client.ts';
import { HttpError } from '../../platform/http-client/http-error.ts';
import type { HttpAnswer } from '../../platform/http-client/pending-request.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { allowedTargets, type LookUp } from './allowed-addresses.ts';
import { type AllowedSources, allowedUrl, shownUrl } from './allowed-sources.ts';
import { ArchiveFile, type ArchiveLimits, type Arrived, STALLED_MS } from './archive-file.ts';
import { ImageSourceError } from './image-errors.ts';

interface DownloadRequest extends ArchiveLimits {
  url: string;
  digest?: string | undefined;
  file: string;
  signal?: AbortSignal | undefined;
  /** Called with the bytes that there are, and with all of them if that is known. */
  onProgress?(bytes: number, total: number | undefined): void;
}

interface DownloadDeps {
  clock: Clock;
  client: HttpClient;
  allowed: AllowedSources;
  /** Between two attempts; tests shorten it. */
  pauseMs?: number;
  /** Default: the operating system's resolver. */
  lookUp?: LookUp | undefined;
}

const ATTEMPTS = 5;
const PAUSE_MS = 1_000;
const MAX_REDIRECTS = 5;
const LOOK_UP_MS = 10_000;
const HEAD_MS = 30_000;
const SILENCE_MS = 30_000;
const TOTAL_MS = 3_600_000;
/**
 * The note beside a partial download. It has the digest of the URL, because the query may be
 * secret.
 */
const note = z.object({ urlDigest: z.string(), validator: z.string() });
const PART = /^bytes (\d+)-\d+\/(\d+|\*)$/;

/** @throws ImageSourceError, ImageSourceNotAllowedError, InvalidImageError, NoImageSpaceError */
export async function download(request: DownloadRequest, deps: DownloadDeps): Promise<Arrived> {
  const file = await ArchiveFile.open(request.file, request);
  let progressAt = deps.clock.now();
  const watched: DownloadRequest = {
    ...request,
    onProgress(bytes, total) {
      progressAt = deps.clock.now();
      request.onProgress?.(bytes, total);
    },
  };
  try {
    for (let attempt = 1; ; attempt++) {
      try {
        await downloadOnce(file, watched, deps);
        return await file.complete(request.digest);
      } catch (error) {
        if (request.signal?.aborted) throw request.signal.reason;
        if (!mayTryAgain(error)) throw sourceErrorOf(error, request);
        if (attempt === ATTEMPTS || deps.clock.now() - progressAt >= STALLED_MS)
          throw new ImageSourceError(`${shownUrl(request.url)}: ${error.message}, after ${attempt} attempts`, error);
      }
      await deps.clock.sleep((deps.pauseMs ?? PAUSE_MS) * attempt, request.signal);
    }
  } finally {
    await file.close();
  }
}

async function downloadOnce(file: ArchiveFile, request: DownloadRequest, deps: DownloadDeps): Promise<void> {
  const validator = file.bytes > 0 ? await readValidator(request) : undefined;
  if (validator === undefined) await file.restart();
  const range = validator === undefined ? {} : { Range: `bytes=${file.bytes}-`, 'If-Range': validator };
  const answer = await open(request, { deps, headers: { 'Accept-Encoding': 'identity', ...range } });
  try {
    const total = await begin(file, request, answer);
    if (total === file.bytes) return;
    for await (const piece of answer.pieces({ silenceMs: SILENCE_MS, withinMs: TOTAL_MS })) {
      await file.append(piece);
      request.onProgress?.(file.bytes, total);
    }
  } finally {
    answer.drop();
  }
}

/** The answer to the last of the redirects. */
async function open(
  { url: first, signal }: DownloadRequest,
  { deps, headers }: { deps: DownloadDeps; headers: Record<string, string> },
): Promise<HttpAnswer> {
  let url = allowedUrl(first, deps.allowed);
  for (let redirects = 0; ; redirects++) {
    const answer = await ask(url, { deps, headers, signal });
    const location = answer.status >= 300 && answer.status < 400 ? answer.header('location') : undefined;
    if (location === undefined) return answer;
    answer.drop();
    if (redirects === MAX_REDIRECTS)
      throw new ImageSourceError(`${shownUrl(first)} redirects more than ${MAX_REDIRECTS} times`);
    const next = URL.parse(location, url.href);
    if (next === null) throw new ImageSourceError(`${shownUrl(first)} redirects to something that is not a URL`);
    url = allowedUrl(next.href, deps.allowed);
  }
}

/** Tries the addresses of the URL until one accepts a connection. */
async function ask(
  url: URL,
  { deps, ...rest }: { deps: DownloadDeps; headers: Record<string, string>; signal: AbortSignal | undefined },
): Promise<HttpAnswer> {
  const { client, clock, allowed } = deps;
  const lookUp = deps.lookUp ?? ((name) => lookUpHost(name, { clock, withinMs: LOOK_UP_MS }));
  let failure: Error = new TemporaryError('its host name is unknown');
  for (const target of await allowedTargets(url, allowed, lookUp)) {
    try {
      const path = url.pathname + url.search;
      return await client.request({ target, method: 'GET', path, headMs: HEAD_MS, ...rest });
    } catch (error) {
      if (!(error instanceof HttpError) || error.kind !== 'unreachable') throw error;
      failure = error;
    }
  }
  throw failure;
}

/**
 * Makes the file fit the answer. @returns the bytes of the whole archive, if that is known
 * @throws ImageSourceError for an answer without the archive
 */
async function begin(file: ArchiveFile, request: DownloadRequest, answer: HttpAnswer): Promise<number | undefined> {
  const { status } = answer;
  if (status === 206) {
    const [, from, total] = PART.exec(answer.header('content-range') ?? '') ?? [];
    if (Number(from) === file.bytes) return total === '*' ? undefined : expected(file, Number(total));
    await file.restart();
    throw new TemporaryError('it answered with another part than was asked for');
  }
  if (status === 200) {
    await file.restart();
    const length = answer.header('content-length');
    const total = length === undefined ? undefined : expected(file, Number(length));
    const validator = strongValidatorOf(answer);
    const about: z.infer<typeof note> = { urlDigest: digestOf(request.url), validator: validator ?? '' };
    await writeFile(noteOf(request.file), JSON.stringify(about), { mode: 0o600 });
    return total;
  }
  if (status === 416) {
    await file.restart();
    throw new TemporaryError('it has less than has arrived');
  }
  const said = `it answered ${status}`;
  if (status === 408 || status === 429 || status >= 500) throw new TemporaryError(said);
  throw new ImageSourceError(`${shownUrl(request.url)}: ${said}`);
}

function expected(file: ArchiveFile, total: number): number {
  file.expect(total);
  return total;
}

/** Only such a one proves that a part belongs to the same bytes (RFC 9110 section 8.8.1). */
function strongValidatorOf(answer: HttpAnswer): string | undefined {
  const etag = answer.header('etag');
  return etag?.startsWith('"') ? etag : undefined;
}

async function readValidator({ file, url }: DownloadRequest): Promise<string | undefined> {
  try {
    const found = note.parse(JSON.parse(await readFile(noteOf(file), 'utf8')));
    return found.urlDigest === digestOf(url) && found.validator !== '' ? found.validator : undefined;
  } catch {
    return undefined;
  }
}

const digestOf = (url: string): string => createHash('sha256').update(url).digest('hex');

/** Beside the file of a download. */
export const noteOf = (file: string): string => `${file}.json`;

/** Another attempt may succeed. */
class TemporaryError extends Error {}

const mayTryAgain = (error: unknown): error is Error =>
  error instanceof TemporaryError ||
  (error instanceof HttpError && ['unreachable', 'timed-out', 'broken-off'].includes(error.kind));

function sourceErrorOf(error: unknown, { url }: DownloadRequest): unknown {
  return error instanceof HttpError ? new ImageSourceError(`${shownUrl(url)}: ${error.reason}`, error) : error;
}

/**
 * Reads a request's body as the JSON object or form that it claims to be, possibly compressed by
 * gzip. Bounded in bytes, before and after decompression, in pieces and in values. Called by
 * `pipeline.ts`, after the caller has been authorized and only for routes that take a parameter
 * from the body.
 */
import type { IncomingMessage } from 'node:http';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { CnapiError } from '../../../platform/errors.ts';
import type { MemoryShare } from '../../../platform/limiting/memory-budget.ts';
import { type BodyProgress, collectBody } from '../../../platform/network/collect-body.ts';
import { countJsonValues, isJsonObject, JsonLimitError } from '../../../protocol/json/bounded-json.ts';
import {
  InvalidContentError,
  RequestTooLargeError,
  UnsupportedEncodingError,
  UnsupportedMediaTypeError,
} from '../http-errors.ts';
import { type BodySize, FREE_BODY_BYTES, FREE_BODY_PIECES, PIECE_BYTES } from '../limits/body-costs.ts';
import { fromUrlEncoded } from './params.ts';

export const MAX_BODY_BYTES = 1024 * 1024;
/** The status of a machine with a thousand VMs has about 20,000. */
const MAX_BODY_VALUES = 50_000;
/** Limits the chunks, or the reads, of one body. Callers send a megabyte in 16 to 800. */
const MAX_BODY_PIECES = 16 * 1024;
/**
 * A body of many pieces is charged for, and its caller checked, each time that so many have come.
 */
const CHARGED_PIECES = 256;
const FORM = 'application/x-www-form-urlencoded';

/** What reads a body on behalf of its caller. */
interface BodyReader {
  /** Aborts when nobody needs the body any more. */
  readonly signal: AbortSignal;
  /** Called before the first byte is read: for `100 Continue`. */
  acceptBody(): void;
  /** Called before a body is read. @throws BodyCostError */
  checkEarlierBodies(): void;
  /**
   * Called with each part of a body's cost as soon as it is known, also of a body that is refused.
   */
  chargeBody(size: BodySize): void;
  openBodyMemory(): MemoryShare;
}

/**
 * The body's parameters; none if it is empty.
 * @throws what the reader throws, InvalidContentError, RequestTooLargeError,
 * UnsupportedEncodingError, UnsupportedMediaTypeError, InvalidArgumentError
 */
export async function readBody(request: IncomingMessage, reader: BodyReader): Promise<Record<string, unknown>> {
  const memory = reader.openBodyMemory();
  try {
    return await readWithin(memory, request, reader);
  } finally {
    memory.release();
  }
}

/**
 * The body as it is, for routes that parse it themselves.
 * @throws as `readBody`, but nothing about its content
 */
export async function readRawBody(request: IncomingMessage, reader: BodyReader, maxBytes: number): Promise<Buffer> {
  const memory = reader.openBodyMemory();
  try {
    if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge(maxBytes);
    const encoding = request.headers['content-encoding'];
    if (encoding !== undefined && encoding !== 'identity') throw new UnsupportedEncodingError(encoding.slice(0, 100));
    if (!isSmall(request)) reader.checkEarlierBodies();
    reader.acceptBody();
    return await collect(request, memory, reader, { isCompressed: false, maxBytes });
  } finally {
    memory.release();
  }
}

/**
 * Called for routes that take no body. Refuses a body that costs quota if the caller's earlier
 * bodies have used up its quota. @throws BodyCostError
 */
export function checkDroppedBody(request: IncomingMessage, reader: BodyReader): void {
  if (!isSmall(request)) reader.checkEarlierBodies();
}

async function readWithin(
  memory: MemoryShare,
  request: IncomingMessage,
  reader: BodyReader,
): Promise<Record<string, unknown>> {
  if (Number(request.headers['content-length'] ?? 0) > MAX_BODY_BYTES) throw tooLarge();
  const isCompressed = isGzip(request.headers['content-encoding']);
  const type = mediaType(request.headers['content-type']);
  if (hasBody(request)) checkContentType(type);
  if (isCompressed || !isSmall(request)) reader.checkEarlierBodies();
  reader.acceptBody();
  const received = await collect(request, memory, reader, { isCompressed, maxBytes: MAX_BODY_BYTES });
  if (received.length === 0) return {};
  if (isCompressed) memory.hold(received.length + MAX_BODY_BYTES);
  const bytes = isCompressed ? await decompress(received, reader) : received;
  const isFree = !isCompressed && bytes.length <= FREE_BODY_BYTES;
  return parseBody(decode(bytes), type, (values) => isFree || reader.chargeBody({ bytes: 0, values }));
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

function isSmall({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] === undefined && Number(headers['content-length'] ?? 0) <= FREE_BODY_BYTES;
}

/** `type` is a media type in lower case without parameters; absent means JSON. */
export function parseBody(
  content: string,
  type: string | undefined,
  charge: (values: number) => void = () => undefined,
): Record<string, unknown> {
  if (type === FORM) return fromUrlEncoded(content);
  checkContentType(type);
  return parseJsonObject(content, charge);
}

/** @throws UnsupportedMediaTypeError */
function checkContentType(type: string | undefined): void {
  if (type !== undefined && type !== FORM && type !== 'application/json' && !type.endsWith('+json'))
    throw new UnsupportedMediaTypeError(type);
}

function parseJsonObject(content: string, charge: (values: number) => void): Record<string, unknown> {
  chargeValues(content, charge);
  let value: unknown;
  try {
    value = JSON.parse(content);
  } catch (cause) {
    throw new InvalidContentError(`Invalid JSON: ${(cause as Error).message.slice(0, 200)}`, { cause });
  }
  if (isJsonObject(value)) return value;
  throw new InvalidContentError('Invalid JSON: the body is not an object');
}

/** @throws RequestTooLargeError */
function chargeValues(content: string, charge: (values: number) => void): void {
  try {
    charge(countJsonValues(content, { maxValues: MAX_BODY_VALUES }));
  } catch (cause) {
    if (!(cause instanceof JsonLimitError)) throw cause;
    charge(MAX_BODY_VALUES);
    throw new RequestTooLargeError(`The body ${cause.message}`);
  }
}

async function collect(
  request: IncomingMessage,
  memory: MemoryShare,
  reader: BodyReader,
  { isCompressed, maxBytes }: { isCompressed: boolean; maxBytes: number },
): Promise<Buffer> {
  const charged: BodyProgress = { bytes: 0, pieces: 0 };
  let received: BodyProgress = charged;
  const isFree = () => !isCompressed && received.bytes <= FREE_BODY_BYTES && received.pieces <= FREE_BODY_PIECES;
  const charge = () => {
    if (isFree()) return;
    const pieces = received.pieces - charged.pieces;
    reader.chargeBody({ bytes: received.bytes - charged.bytes + pieces * PIECE_BYTES, values: 0 });
    Object.assign(charged, received);
  };
  try {
    // The rest of a body that is refused stays for the exchange to drain.
    const onPiece = (progress: BodyProgress) => {
      received = progress;
      if (progress.bytes > maxBytes) throw tooLarge(maxBytes);
      if (progress.pieces > MAX_BODY_PIECES) throw tooManyPieces();
      if (progress.bytes > FREE_BODY_BYTES) memory.hold(progress.bytes);
      if (progress.pieces % CHARGED_PIECES > 0) return;
      charge();
      reader.checkEarlierBodies();
    };
    const content = await collectBody(request, onPiece, reader.signal);
    // Others may have been received at the same time.
    if (!isFree()) reader.checkEarlierBodies();
    return content;
  } catch (cause) {
    throw cause instanceof CnapiError ? cause : new InvalidContentError('The body ended early', { cause });
  } finally {
    charge();
  }
}

/** @throws UnsupportedEncodingError */
function isGzip(encoding: string | undefined): boolean {
  const name = encoding?.trim().toLowerCase() ?? '';
  if (name === '' || name === 'identity') return false;
  if (name === 'gzip' || name === 'x-gzip') return true;
  throw new UnsupportedEncodingError(name.slice(0, 100));
}

const inflate = promisify(gunzip);

/** Stops at the limit: a small body may expand to gigabytes. */
async function decompress(bytes: Buffer, reader: BodyReader): Promise<Buffer> {
  const charge = (size: number) => reader.chargeBody({ bytes: size, values: 0 });
  try {
    const content = await inflate(bytes, { maxOutputLength: MAX_BODY_BYTES });
    charge(content.length);
    return content;
  } catch (cause) {
    // How much was decompressed before the error is not known.
    charge(MAX_BODY_BYTES);
    if ((cause as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') throw tooLarge();
    throw new InvalidContentError('The body is not what its Content-Encoding says, gzip', { cause });
  }
}

function decode(bytes: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new InvalidContentError('The body is not UTF-8', { cause });
  }
}

function mediaType(header: string | undefined): string | undefined {
  const type = header?.split(';')[0]?.trim().toLowerCase().slice(0, 100);
  return type === '' ? undefined : type;
}

function tooManyPieces(): RequestTooLargeError {
  return new RequestTooLargeError(`The body comes in more than ${MAX_BODY_PIECES} pieces`);
}

function tooLarge(maxBytes = MAX_BODY_BYTES): RequestTooLargeError {
  return new RequestTooLargeError(`The body is larger than ${maxBytes} bytes`);
}

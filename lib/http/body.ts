/** Reads a request's body, bounded, as the JSON object or form that it claims to be. Called by the listener. */
import type { IncomingMessage } from 'node:http';
import { InvalidContentError, RequestTooLargeError, UnsupportedMediaTypeError } from './http-errors.ts';
import { fromUrlEncoded } from './params.ts';

export const MAX_BODY_BYTES = 1024 * 1024;

/**
 * The body's parameters; none when it is empty.
 * @throws InvalidContentError, RequestTooLargeError, UnsupportedMediaTypeError, InvalidArgumentError
 */
export async function readBody(request: IncomingMessage): Promise<Record<string, unknown>> {
  if (Number(request.headers['content-length'] ?? 0) > MAX_BODY_BYTES) throw tooLarge();
  const bytes = await collect(request);
  if (bytes.length === 0) return {};
  return parseBody(decode(bytes), mediaType(request.headers['content-type']));
}

/** `type` is a media type in lower case without parameters; absent means JSON. */
export function parseBody(content: string, type: string | undefined): Record<string, unknown> {
  if (type === 'application/x-www-form-urlencoded') return fromUrlEncoded(content);
  if (type !== undefined && type !== 'application/json' && !type.endsWith('+json'))
    throw new UnsupportedMediaTypeError(type);
  return parseJsonObject(content);
}

function parseJsonObject(content: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(content);
  } catch (cause) {
    throw new InvalidContentError(`Invalid JSON: ${(cause as Error).message.slice(0, 200)}`, { cause });
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw new InvalidContentError('Invalid JSON: the body is not an object');
}

async function collect(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let total = 0;
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) {
      total += chunk.length;
      if (total > MAX_BODY_BYTES) throw tooLarge();
      chunks.push(chunk);
    }
  } catch (cause) {
    throw cause instanceof RequestTooLargeError ? cause : new InvalidContentError('The body ended early', { cause });
  }
  return Buffer.concat(chunks);
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

function tooLarge(): RequestTooLargeError {
  return new RequestTooLargeError(`The body is larger than ${MAX_BODY_BYTES} bytes`);
}

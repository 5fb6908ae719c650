/**
 * Parses POST /tasks: task and params in its query or its body (JSON or a form), within limits.
 * Called by http-port.ts.
 */
import type { IncomingMessage } from 'node:http';
import { CnapiError } from '../../platform/errors.ts';
import { MemoryBudget } from '../../platform/limiting/memory-budget.ts';
import { collectBody } from '../../platform/network/collect-body.ts';
import { isJsonObject, JsonLimitError, parseBoundedJson } from '../../protocol/json/bounded-json.ts';
import { MAX_FRAME_BYTES, MAX_FRAME_VALUES } from '../../protocol/limits.ts';
import { hasTooManyParams, MAX_PARAMS } from '../../protocol/url-encoded.ts';
import { isTooDeep } from '../runner/depth.ts';

/** The request cannot be carried out as it was sent. */
export class PostError extends CnapiError {}

interface TaskPost {
  name: string;
  params: Record<string, unknown>;
}

/** Limit for all bodies that one port is reading. */
const MAX_BYTES_HELD = 64 * 1024 * 1024;
/**
 * Limits the chunks, or the reads, of one body. In the largest body they have 128 bytes each on
 * average.
 */
const MAX_PIECES = 64 * 1024;

/** Memory budget of all bodies that one port is reading. */
export function postMemory(): MemoryBudget {
  const full = () => new PostError('ServiceUnavailable', 503, 'CN Agent is reading as many requests as it can take');
  return new MemoryBudget({ maxBytes: MAX_BYTES_HELD, maxBytesPerCaller: 0, full, shareFull: full });
}

/** The query takes precedence over the body. @throws PostError */
export async function parsePost(request: IncomingMessage, budget: MemoryBudget): Promise<TaskPost> {
  const [, query = ''] = (request.url ?? '').split('?');
  const given = { ...(await readBody(request, budget)), ...parseUrlEncoded(query) };
  const { task, params } = given;
  if (task === undefined) throw new PostError('InvalidArgument', 409, "Missing key 'task'");
  if (params === undefined) throw new PostError('InvalidArgument', 409, "Missing key 'params'");
  if (typeof task !== 'string' || task === '' || task.length > 100) throw invalid('task');
  const parsed = typeof params === 'string' ? parseJson(params) : params;
  if (!isJsonObject(parsed) || isTooDeep(parsed)) throw invalid('params');
  return { name: task, params: parsed };
}

async function readBody(request: IncomingMessage, budget: MemoryBudget): Promise<Record<string, unknown>> {
  const text = await readText(request, budget);
  if (text === '') return {};
  const type = request.headers['content-type'] ?? '';
  if (type.startsWith('application/x-www-form-urlencoded')) return parseUrlEncoded(text);
  const body = parseJson(text);
  if (isJsonObject(body)) return body;
  throw new PostError('InvalidContent', 400, 'Invalid JSON: the body is not an object');
}

async function readText(request: IncomingMessage, budget: MemoryBudget): Promise<string> {
  const memory = budget.open(undefined);
  try {
    const content = await collectBody(request, ({ bytes, pieces }) => {
      memory.hold(bytes);
      if (bytes > MAX_FRAME_BYTES) throw tooLarge(`is larger than ${MAX_FRAME_BYTES} bytes`);
      if (pieces > MAX_PIECES) throw tooLarge(`comes in more than ${MAX_PIECES} pieces`);
    });
    return content.toString('utf8');
  } finally {
    memory.release();
  }
}

const tooLarge = (what: string) => new PostError('RequestEntityTooLarge', 413, `The body ${what}`);

function parseUrlEncoded(text: string): Record<string, string> {
  if (hasTooManyParams(text)) throw new PostError('InvalidArgument', 409, `More than ${MAX_PARAMS} parameters`);
  return Object.fromEntries(new URLSearchParams(text));
}

function parseJson(text: string): unknown {
  try {
    return parseBoundedJson(text, { maxValues: MAX_FRAME_VALUES, maxDepth: Number.POSITIVE_INFINITY });
  } catch (cause) {
    if (cause instanceof JsonLimitError && cause.code === 'values')
      throw new PostError('RequestEntityTooLarge', 413, `The body ${cause.message}`, { cause });
    throw new PostError('InvalidContent', 400, `Invalid JSON: ${(cause as Error).message.slice(0, 200)}`, { cause });
  }
}

const invalid = (key: string) => new PostError('InvalidArgument', 409, `Invalid ${key}`);

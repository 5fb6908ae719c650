/** What a POST /tasks asks for, in its query or its body (JSON or a form), read within a bound. Called by http-port.ts. */
import type { IncomingMessage } from 'node:http';
import { CnapiError } from '../errors.ts';
import { MAX_FRAME_BYTES } from '../wire/limits.ts';
import { isTooDeep } from './depth.ts';

/** The request cannot be done as it was put. */
export class PostError extends CnapiError {}

export interface TaskPost {
  name: string;
  params: Record<string, unknown>;
}

/** The query goes over the body. @throws PostError */
export async function parsePost(request: IncomingMessage): Promise<TaskPost> {
  const [, query = ''] = (request.url ?? '').split('?');
  const given = { ...(await readBody(request)), ...Object.fromEntries(new URLSearchParams(query)) };
  const { task, params } = given;
  if (task === undefined) throw new PostError('InvalidArgument', 409, "Missing key 'task'");
  if (params === undefined) throw new PostError('InvalidArgument', 409, "Missing key 'params'");
  if (typeof task !== 'string' || task === '' || task.length > 100) throw invalid('task');
  const parsed = typeof params === 'string' ? parseJson(params) : params;
  if (!isObject(parsed) || isTooDeep(parsed)) throw invalid('params');
  return { name: task, params: parsed };
}

async function readBody(request: IncomingMessage): Promise<Record<string, unknown>> {
  const text = await readText(request);
  if (text === '') return {};
  const type = request.headers['content-type'] ?? '';
  if (type.startsWith('application/x-www-form-urlencoded')) return Object.fromEntries(new URLSearchParams(text));
  const body = parseJson(text);
  if (isObject(body)) return body;
  throw new PostError('InvalidContent', 400, 'Invalid JSON: the body is not an object');
}

async function readText(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_FRAME_BYTES)
      throw new PostError('RequestEntityTooLarge', 413, `The body is larger than ${MAX_FRAME_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new PostError('InvalidContent', 400, `Invalid JSON: ${(cause as Error).message.slice(0, 200)}`, { cause });
  }
}

const invalid = (key: string) => new PostError('InvalidArgument', 409, `Invalid ${key}`);

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

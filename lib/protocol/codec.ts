/**
 * Text ↔ frames. An instance parses everything it receives with `parseAgentFrame`, an agent with
 * `parseInstanceFrame`. A frame that cannot be understood throws a FrameError with a code for the
 * peer's log; nothing else is thrown. Heartbeats, nearly all of the traffic, take a separate path
 * that allocates one small object.
 */
import type { z } from 'zod';
import { countJsonValues, JsonLimitError } from './bounded-json.ts';
import { type AgentFrame, agentFrames, type HeartbeatFrame, type InstanceFrame, instanceFrames } from './frames.ts';
import { MAX_FRAME_DEPTH, MAX_FRAME_VALUES, REPORT_LIMITS } from './limits.ts';

export class FrameError extends Error {
  /**
   * 'json', 'type' (unknown; tolerated when the peer is newer), 'fields' or 'limit' (larger than
   * its type allows).
   */
  readonly code: 'json' | 'type' | 'fields' | 'limit';

  constructor(code: FrameError['code'], message: string) {
    super(message);
    this.name = 'FrameError';
    this.code = code;
  }
}

/** Pays for the values of a frame before they are created. */
export interface ValuePayer {
  payForValues(values: number): void;
}

/** @throws FrameError */
export function parseAgentFrame(text: string, payer?: ValuePayer): AgentFrame {
  try {
    return parseHeartbeat(text) ?? parseFrame<AgentFrame>(text, agentFrames, payer);
  } catch (error) {
    const end = error instanceof FrameError && error.code === 'limit' ? endWithoutResult(text, error) : undefined;
    if (end === undefined) throw error;
    return parseFrame<AgentFrame>(JSON.stringify(end), agentFrames, payer);
  }
}

/** @throws FrameError */
export function parseInstanceFrame(text: string, payer?: ValuePayer): InstanceFrame {
  return parseHeartbeat(text) ?? parseFrame<InstanceFrame>(text, instanceFrames, payer);
}

export function encodeFrame(frame: AgentFrame | InstanceFrame): string {
  return JSON.stringify(frame);
}

/** Returns the same text as `encodeFrame` for a heartbeat, without building the object. */
export function encodeHeartbeat(sequence: number): string {
  return `${HEARTBEAT_HEAD}${sequence}}`;
}

const HEARTBEAT_HEAD = '{"type":"heartbeat","sequence":';
const MAX_HEARTBEAT_CHARS = HEARTBEAT_HEAD.length + 17;

function parseHeartbeat(text: string): HeartbeatFrame | undefined {
  if (text.length > MAX_HEARTBEAT_CHARS || !text.startsWith(HEARTBEAT_HEAD) || !text.endsWith('}')) return undefined;
  const digits = text.slice(HEARTBEAT_HEAD.length, -1);
  const sequence = Number(digits);
  return Number.isSafeInteger(sequence) && sequence >= 0 && /^\d+$/.test(digits)
    ? { type: 'heartbeat', sequence }
    : undefined;
}

function parseFrame<Frame>(text: string, schemas: Record<string, z.ZodType>, payer: ValuePayer | undefined): Frame {
  const values = valuesOf(text);
  payer?.payForValues(values);
  const type = typeOf(parseJson(text));
  if (!Object.hasOwn(schemas, type.name)) throw new FrameError('type', `frame type ${type.name} is not known`);
  checkSize(type.name, text, values);
  const parsed = (schemas[type.name] as z.ZodType).safeParse(type.value);
  if (parsed.success) return parsed.data as Frame;
  const issue = parsed.error.issues[0];
  throw new FrameError('fields', `${type.name}.${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'is not valid'}`);
}

const END_HEAD = /^\{"type":"task_end","id":"([^"]{36})","attempt":(\d{1,7}),"outcome":"(complete|failure)"/;

/**
 * Accepts an oversized end without its result. If it were refused, the agent would send it for ever
 * and the task would never end.
 */
function endWithoutResult(text: string, { message }: FrameError): object | undefined {
  const head = END_HEAD.exec(text);
  if (head === null) return undefined;
  const [, id, attempt, outcome] = head;
  const error = outcome === 'failure' ? { error: { code: 'ResultTooLarge', message } } : {};
  const result = { truncated: true, message: `the result was not kept: ${message}` };
  return { type: 'task_end', id, attempt: Number(attempt), outcome, result, ...error, reportedAt: '' };
}

/** @throws FrameError when the text has more values than any frame may have */
function valuesOf(text: string): number {
  try {
    return countJsonValues(text, { maxValues: MAX_FRAME_VALUES, maxDepth: MAX_FRAME_DEPTH });
  } catch (error) {
    if (!(error instanceof JsonLimitError)) throw error;
    throw new FrameError('limit', `frame ${error.message}`);
  }
}

function checkSize(type: string, text: string, values: number): void {
  const limits = REPORT_LIMITS[type];
  if (limits === undefined) return;
  if (values > limits.values) throw new FrameError('limit', `${type} frame holds more than ${limits.values} values`);
  if (Buffer.byteLength(text) > limits.bytes)
    throw new FrameError('limit', `${type} frame is larger than ${limits.bytes} bytes`);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new FrameError('json', 'frame is not JSON');
  }
}

function typeOf(value: unknown): { name: string; value: object } {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new FrameError('json', 'frame is not a JSON object');
  const name = (value as { type?: unknown }).type;
  if (typeof name !== 'string' || name.length > 50) throw new FrameError('type', 'frame has no type');
  return { name, value };
}

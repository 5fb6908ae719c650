/**
 * Text ↔ frames. An instance parses everything it receives with `parseAgentFrame`, an agent with
 * `parseInstanceFrame`. A frame that cannot be understood throws a FrameError with a code for the
 * peer's log; nothing else is thrown. Heartbeats, nearly all of the traffic, take a separate path
 * that allocates one small object.
 */
import type { z } from 'zod';
import { countJsonValues, isJsonObject, JsonLimitError } from '../json/bounded-json.ts';
import {
  AGENT_FRAME_LIMITS,
  type FrameLimits,
  MAX_FRAME_BYTES,
  MAX_FRAME_DEPTH,
  MAX_FRAME_VALUES,
  OTHER_AGENT_FRAME_LIMITS,
} from '../limits.ts';
import { type AgentFrame, agentFrames, type HeartbeatFrame, type InstanceFrame, instanceFrames } from './frames.ts';

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

/** What the values of a frame use up, before they are created. */
export interface ValueBudget {
  consumeValues(values: number): void;
}

/** @throws FrameError */
export function parseAgentFrame(text: string, budget?: ValueBudget): AgentFrame {
  try {
    return parseHeartbeat(text) ?? parseFrame<AgentFrame>(text, FROM_AGENT, budget);
  } catch (error) {
    const end = error instanceof FrameError ? endWithoutResult(text, error) : undefined;
    if (end === undefined) throw error;
    return parseFrame<AgentFrame>(JSON.stringify(end), FROM_AGENT, budget);
  }
}

/** @throws FrameError */
export function parseInstanceFrame(text: string, budget?: ValueBudget): InstanceFrame {
  return parseHeartbeat(text) ?? parseFrame<InstanceFrame>(text, FROM_INSTANCE, budget);
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

interface FrameSender {
  schemas: Record<string, z.ZodType>;
  /** `type` is undefined while it is not known. */
  limitsOf(type: string | undefined): FrameLimits;
}

const FROM_AGENT: FrameSender = {
  schemas: agentFrames,
  limitsOf: (type) =>
    type !== undefined && Object.hasOwn(AGENT_FRAME_LIMITS, type)
      ? (AGENT_FRAME_LIMITS[type] as FrameLimits)
      : OTHER_AGENT_FRAME_LIMITS,
};
const INSTANCE_FRAME_LIMITS = { bytes: MAX_FRAME_BYTES, values: MAX_FRAME_VALUES };
const FROM_INSTANCE: FrameSender = { schemas: instanceFrames, limitsOf: () => INSTANCE_FRAME_LIMITS };

/** `type` is first in a frame, so its limits apply before it is parsed. */
const TYPE_HEAD = /^\{"type":"([a-z_]{1,50})"/;

function parseFrame<Frame>(text: string, { schemas, limitsOf }: FrameSender, budget: ValueBudget | undefined): Frame {
  const head = TYPE_HEAD.exec(text)?.[1];
  const values = valuesOf(text, limitsOf(head), head);
  budget?.consumeValues(values);
  const type = typeOf(parseJson(text));
  if (!Object.hasOwn(schemas, type.name)) throw new FrameError('type', `frame type ${type.name} is not known`);
  if (type.name !== head) checkLimit(limitsOf(type.name), type.name, { text, values });
  const parsed = (schemas[type.name] as z.ZodType).safeParse(type.value);
  if (parsed.success) return parsed.data as Frame;
  const issue = parsed.error.issues[0];
  throw new FrameError('fields', `${type.name}.${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'is not valid'}`);
}

const END_HEAD = /^\{"type":"task_end","id":"([^"]{36})","attempt":(\d{1,7}),"outcome":"(complete|failure)"/;

const ENDS_KEPT: { [Code in FrameError['code']]?: string } = { limit: 'ResultTooLarge', fields: 'BadAgentAnswer' };

/**
 * Accepts an end that is too large, or has an invalid field such as the code of its error, without
 * its result and error. If it were refused, the agent would send it for ever and the task would
 * never end.
 */
function endWithoutResult(text: string, { code: reason, message }: FrameError): object | undefined {
  const head = END_HEAD.exec(text);
  const code = ENDS_KEPT[reason];
  if (head === null || code === undefined) return undefined;
  const [, id, attempt, outcome] = head;
  const error = outcome === 'failure' ? { error: { code, message } } : {};
  const result = { truncated: true, message: `the result was not kept: ${message}` };
  return { type: 'task_end', id, attempt: Number(attempt), outcome, result, ...error, reportedAt: '' };
}

/** @throws FrameError when the text is larger than its type allows */
function valuesOf(text: string, limits: FrameLimits, type: string | undefined): number {
  try {
    const values = countJsonValues(text, { maxValues: limits.values, maxDepth: MAX_FRAME_DEPTH });
    checkLimit(limits, type, { text, values });
    return values;
  } catch (error) {
    if (!(error instanceof JsonLimitError)) throw error;
    throw new FrameError('limit', `${nameOf(type)} ${error.message}`);
  }
}

function checkLimit(limits: FrameLimits, type: string | undefined, { text, values }: { text: string; values: number }) {
  if (values > limits.values) throw new FrameError('limit', `${nameOf(type)} holds more than ${limits.values} values`);
  if (Buffer.byteLength(text) > limits.bytes)
    throw new FrameError('limit', `${nameOf(type)} is larger than ${limits.bytes} bytes`);
}

const nameOf = (type: string | undefined): string => (type === undefined ? 'frame' : `${type} frame`);

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new FrameError('json', 'frame is not JSON');
  }
}

function typeOf(value: unknown): { name: string; value: object } {
  if (!isJsonObject(value)) throw new FrameError('json', 'frame is not a JSON object');
  const name = value.type;
  if (typeof name !== 'string' || name.length > 50) throw new FrameError('type', 'frame has no type');
  return { name, value };
}

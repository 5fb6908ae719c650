/**
 * Text ↔ frames. `parseAgentFrame` is what an instance runs on all it receives, `parseInstanceFrame` what an agent runs.
 * A frame that cannot be understood is a FrameError with a code for the peer's log; it never throws anything else.
 * Heartbeats, nearly all of the traffic, take a path of their own that allocates one small object.
 */
import type { z } from 'zod';
import { type AgentFrame, agentFrames, type HeartbeatFrame, type InstanceFrame, instanceFrames } from './frames.ts';

export class FrameError extends Error {
  /** 'json', 'type' (unknown; forgiven when the peer is newer) or 'fields'. */
  readonly code: 'json' | 'type' | 'fields';

  constructor(code: FrameError['code'], message: string) {
    super(message);
    this.name = 'FrameError';
    this.code = code;
  }
}

export function parseAgentFrame(text: string): AgentFrame {
  return parseHeartbeat(text) ?? parseFrame<AgentFrame>(text, agentFrames);
}

export function parseInstanceFrame(text: string): InstanceFrame {
  return parseHeartbeat(text) ?? parseFrame<InstanceFrame>(text, instanceFrames);
}

export function encodeFrame(frame: AgentFrame | InstanceFrame): string {
  return JSON.stringify(frame);
}

/** The text of a heartbeat, the same as `encodeFrame` makes, without building the object. */
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

function parseFrame<Frame>(text: string, schemas: Record<string, z.ZodType>): Frame {
  const type = typeOf(parseJson(text));
  if (!Object.hasOwn(schemas, type.name)) throw new FrameError('type', `frame type ${type.name} is not known`);
  const parsed = (schemas[type.name] as z.ZodType).safeParse(type.value);
  if (parsed.success) return parsed.data as Frame;
  const issue = parsed.error.issues[0];
  throw new FrameError('fields', `${type.name}.${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'is not valid'}`);
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

/**
 * Topics and messages as text, with their limits. Pure. Used by both sides of every bus. Invalid
 * input gives `undefined`; the caller drops and counts it, because a lost message may cost time but
 * never correctness.
 */
import type { BusMessage } from './bus.ts';

export const MAX_MESSAGE_BYTES = 4_000;
const topicPattern = /^[a-z0-9:_-]{1,100}$/;

export function isTopic(topic: string): boolean {
  return topicPattern.test(topic);
}

/** Returns the message as JSON text, or undefined when it cannot be encoded or is too large. */
export function encodeBusMessage(message: BusMessage): string | undefined {
  try {
    const text = JSON.stringify(message);
    return Buffer.byteLength(text) <= MAX_MESSAGE_BYTES ? text : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the message in `text`, or undefined when it is too large, not JSON or not an object. */
export function decodeBusMessage(text: string): BusMessage | undefined {
  if (Buffer.byteLength(text) > MAX_MESSAGE_BYTES) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is BusMessage {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

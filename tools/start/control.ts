/**
 * What goes over the control socket of a running `npm start`, a JSON line each: one operation, then progress in words until
 * one answer. Pure. The socket is a file in the data directory that its owner alone may open, so that whoever may ask is
 * decided by the system, as with the data itself; signals could carry neither a number nor an answer, and files no progress.
 */
import path from 'node:path';
import { z } from 'zod';
import { instanceLimits } from './options.ts';

const [least, most] = instanceLimits;

const operation = z.discriminatedUnion('operation', [
  z.strictObject({ operation: z.literal('scale'), instances: z.int().min(least).max(most) }),
  z.strictObject({ operation: z.literal('rolling-restart') }),
]);

const reply = z.union([
  z.strictObject({ progress: z.string() }),
  z.strictObject({ done: z.string() }),
  z.strictObject({ refused: z.string() }),
]);

export type Operation = z.infer<typeof operation>;
export type Reply = z.infer<typeof reply>;

/** An operation is shorter. */
export const maxOperationBytes = 1024;

export function controlFile(data: string): string {
  return path.join(data, 'config', 'control.sock');
}

export function encode(message: Operation | Reply): string {
  return `${JSON.stringify(message)}\n`;
}

/** Undefined when it is none. */
export function parseOperation(line: string): Operation | undefined {
  return operation.safeParse(json(line)).data;
}

/** Undefined when it is none. */
export function parseReply(line: string): Reply | undefined {
  return reply.safeParse(json(line)).data;
}

function json(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

/**
 * The messages on the control socket of a running `npm start`, one JSON line each: one operation,
 * then progress texts until one answer. Pure. The socket is a file in the data directory that only
 * its owner may open, so that the system decides who may use it, as for the data. Signals could not
 * carry a number or an answer; files could not carry progress.
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
export type ControlReply = z.infer<typeof reply>;

/** Every operation is shorter. */
export const maxOperationBytes = 1024;

export function controlFile(data: string): string {
  return path.join(data, 'config', 'control.sock');
}

export function encode(message: Operation | ControlReply): string {
  return `${JSON.stringify(message)}\n`;
}

/** Returns undefined for an invalid operation. */
export function parseOperation(line: string): Operation | undefined {
  return operation.safeParse(json(line)).data;
}

/** Returns undefined for an invalid reply. */
export function parseAnswer(line: string): ControlReply | undefined {
  return reply.safeParse(json(line)).data;
}

function json(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

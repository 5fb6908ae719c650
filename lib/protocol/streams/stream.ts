/**
 * Streams: bytes in both directions between a caller at one instance and an agent, which opens a
 * WebSocket of its own to that instance. docs/design/streams.md.
 *
 * Every message is binary; its first byte is the channel, with the numbers that Kubernetes uses
 * (v5.channel.k8s.io). Only the first message to the caller is text: StreamGreeting as JSON. The
 * instance passes messages on as they are, and looks for the status only.
 */

import { z } from 'zod';
import type { StreamTaskName } from '../task-name.ts';

export const STREAM_SUBPROTOCOL = 'cnapi.stream.v1';

export const CHANNELS = {
  /** Input, sent to the agent. */
  stdin: 0,
  stdout: 1,
  stderr: 2,
  /** StreamStatus as JSON: the last message to the caller, sent once. */
  status: 3,
  /** TerminalSize as JSON, sent to the agent. */
  resize: 4,
  /** LogPlace as JSON, to the caller: after what has come so far, the log continues there. */
  position: 5,
  /**
   * The channel in the next byte has ended: stdin towards the agent, or a connection's stdout
   * towards the caller.
   */
  close: 255,
} as const;

/** Maximum of one message, with the byte of its channel. */
export const MAX_STREAM_MESSAGE = 64 * 1024 + 1;
/** How long a caller's stream waits for the agent. */
export const JOIN_WITHIN_MS = 60_000;
/** A larger terminal size is refused. */
const MAX_CELLS = 2_000;

export const EXEC_TASK = 'exec' as const;
export const CONNECT_TASK = 'connect' as const;
export const VM_EXEC_TASK = 'vm_exec' as const;
export const VM_LOGS_TASK = 'vm_logs' as const;
export const VM_CONSOLE_TASK = 'vm_console' as const;
export const VM_CONNECT_TASK = 'vm_connect' as const;
export const VM_STATS_TASK = 'vm_stats' as const;
/**
 * The tasks whose work has a stream, and the routes that create them: only those can name the place
 * of a stream.
 */
export const STREAM_TASKS: Readonly<Record<StreamTaskName, string>> = {
  [EXEC_TASK]: 'POST /servers/:server_uuid/exec',
  [CONNECT_TASK]: 'POST /servers/:server_uuid/connect',
  [VM_EXEC_TASK]: 'POST /servers/:server_uuid/vms/:vm_uuid/exec',
  [VM_LOGS_TASK]: 'POST /servers/:server_uuid/vms/:vm_uuid/logs',
  [VM_CONSOLE_TASK]: 'POST /servers/:server_uuid/vms/:vm_uuid/console',
  [VM_CONNECT_TASK]: 'POST /servers/:server_uuid/vms/:vm_uuid/connect',
  [VM_STATS_TASK]: 'POST /servers/:server_uuid/vms/:vm_uuid/docker-stats',
};

const cells = z.int('is not a whole number').min(1).max(MAX_CELLS);
export const terminalSize = z.object({ columns: cells, rows: cells });
export type TerminalSize = z.infer<typeof terminalSize>;

/** The terminal in which a command runs; `type` is its TERM. */
export const terminal = terminalSize.extend({
  type: z
    .string()
    .regex(/^[0-9A-Za-z][0-9A-Za-z.+_-]{0,49}$/, 'is not a type of a terminal, such as xterm-256color')
    .default('xterm'),
});
export type Terminal = z.infer<typeof terminal>;

/**
 * The stream's name: the uuid of the instance where its caller is, a dot, and a uuid that only the
 * caller knows.
 */
export const streamName = z
  .string()
  .regex(
    /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/,
    'is not a name of a stream; open one at GET /servers/:server_uuid/stream',
  );

export const streamGreeting = z.object({ stream: streamName });

/** How the agent's end of a stream ended. */
export const streamStatus = z.object({
  exit_code: z.int().nullable().optional(),
  signal: z.string().nullable().optional(),
  error: z.object({ code: z.string(), message: z.string() }).optional(),
});
export type StreamStatus = z.infer<typeof streamStatus>;

/** The instance at which an agent finds a stream, as the task names it. */
export const streamPlace = z.object({
  name: streamName,
  host: z.string().min(1).max(255),
  port: z.int().min(1).max(65_535),
});
export type StreamPlace = z.infer<typeof streamPlace>;

/** A place in the log of a VM: its file, and bytes in it. */
export const logPlace = z.object({ number: z.int().min(1), offset: z.int().min(0) });
export type LogPlace = z.infer<typeof logPlace>;

/**
 * From where a caller continues: the last position that it was told, and the bytes that came after
 * it.
 */
export const logResume = z.object({
  position: logPlace,
  stdout: z.int().min(0),
  stderr: z.int().min(0),
});
export type LogResume = z.infer<typeof logResume>;

export function streamMessage(channel: number, content: Buffer | string): Buffer {
  return Buffer.concat([Buffer.from([channel]), typeof content === 'string' ? Buffer.from(content) : content]);
}

/** The pieces of `bytes` as messages. */
export function* streamMessages(channel: number, bytes: Buffer): Generator<Buffer> {
  for (let start = 0; start < bytes.length; start += MAX_STREAM_MESSAGE - 1)
    yield streamMessage(channel, bytes.subarray(start, start + MAX_STREAM_MESSAGE - 1));
}

/** Undefined for an empty message, which nobody sends. */
export function channelIn(message: Buffer): number | undefined {
  return message[0];
}

/** The value of a JSON channel; undefined if it is not one. */
export function jsonIn<Schema extends z.ZodType>(
  schema: Schema,
  message: Buffer | string,
): z.infer<Schema> | undefined {
  try {
    const text = typeof message === 'string' ? message : message.subarray(1).toString();
    return schema.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

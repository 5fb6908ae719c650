/** The standard streams of one call: those of the process, or, in a test, others. */
import type { Writable } from 'node:stream';

export type OutputStream = Writable & { isTTY?: boolean; columns?: number };

export interface Streams {
  /** Undefined: there is no standard input. */
  stdin: (NodeJS.ReadStream & { fd: number }) | undefined;
  stdout: OutputStream;
  stderr: OutputStream;
}

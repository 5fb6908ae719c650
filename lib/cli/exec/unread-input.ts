/**
 * Standard input of a command that does not read it. A user who gives input expects it to arrive,
 * so the command refuses it before anything runs instead of dropping it. A terminal, /dev/null and
 * an input that ends without a byte do not count as input. Neither does an open pipe that is silent
 * so far: if bytes arrive later, stderr reports them.
 */
import { fstatSync } from 'node:fs';
import type { Output } from '../terminal/output.ts';
import { UsageError } from '../terminal/usage-error.ts';

const REFUSAL = 'standard input does not reach the command';

export class UnreadInput {
  readonly #output: Output;
  #hasArrived = false;
  #isRunning = false;

  /** Watches from now on. */
  constructor(output: Output) {
    this.#output = output;
    const kind = kindOfInput();
    if (kind === 'file') this.#hasArrived = true;
    if (kind !== 'stream') return;
    process.stdin.on('data', this.#onData).on('error', () => undefined);
    // It does not keep the process running.
    (process.stdin as { unref?: () => void }).unref?.();
  }

  /** Call before anything runs. @throws UsageError */
  refuse(): void {
    this.#isRunning = true;
    if (this.#hasArrived)
      throw new UsageError(
        `${REFUSAL}: nothing was run. Redirect it from /dev/null, or send what it needs with --script - or as arguments`,
      );
  }

  close(): void {
    process.stdin.off('data', this.#onData);
    process.stdin.pause();
  }

  readonly #onData = (): void => {
    if (this.#isRunning && !this.#hasArrived) this.#output.complain(`${REFUSAL}; what came on it is dropped`);
    this.#hasArrived = true;
  };
}

/** `file`: a file with content; the content after its current position is not examined. */
function kindOfInput(): 'none' | 'file' | 'stream' {
  try {
    const input = fstatSync(0);
    if (input.isFile()) return input.size > 0 ? 'file' : 'none';
    return input.isFIFO() || input.isSocket() ? 'stream' : 'none';
  } catch {
    return 'none';
  }
}

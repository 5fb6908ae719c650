/**
 * The terminal as a screen that is redrawn repeatedly. It uses the alternate screen, so that the
 * previous contents reappear afterwards. `close()` restores screen, cursor and keyboard; the code
 * that opens a screen closes it on every path.
 */
const ENTER = '\x1b[?1049h\x1b[?25l';
const LEAVE = '\x1b[?25h\x1b[?1049l';

export class Screen {
  readonly #onKey: (key: string) => void;
  readonly #onData = (data: Buffer) => this.#onKey(data.toString('latin1'));
  #isOpen = false;

  constructor(onKey: (key: string) => void) {
    this.#onKey = onKey;
  }

  get rows(): number {
    return process.stdout.rows || 24;
  }

  open(): void {
    this.#isOpen = true;
    // A last resort for an unexpected exit.
    process.once('exit', this.close);
    process.stdout.write(ENTER);
    if (!process.stdin.isTTY) return;
    process.stdin.setRawMode(true);
    process.stdin.on('data', this.#onData);
    process.stdin.resume();
  }

  /** Draws the lines without flicker; leaves out lines that do not fit. */
  draw(lines: readonly string[]): void {
    if (!this.#isOpen) return;
    const shown = lines.slice(0, this.rows);
    process.stdout.write(`\x1b[H${shown.map((line) => `${line}\x1b[K`).join('\r\n')}\x1b[J`);
  }

  readonly close = (): void => {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    process.off('exit', this.close);
    if (process.stdin.isTTY) {
      process.stdin.off('data', this.#onData);
      process.stdin.setRawMode(false);
      process.stdin.pause();
    }
    process.stdout.write(LEAVE);
  };
}

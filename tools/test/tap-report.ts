/**
 * Reads the TAP of a whole run, line by line. A file that passed becomes one line; one that failed is given in full, so
 * that a log holds exactly what is worth reading. Pure but for `print`.
 */
export interface TapTotals {
  passed: number;
  failed: number;
  /** Reason → number of tests skipped for it. */
  skipped: Map<string, number>;
}

const fileResult = /^(not )?ok \d+ - (\S+)(?: # time=([\d.]+m?s))?/;
const leafSkipped = /^\s+ok \d+ .*# SKIP ?(.*)$/;
const totalsLine = /^# \{ total: \d+/;
const keptLines = 4000;

export class TapReport {
  readonly #print: (text: string) => void;
  readonly #skipped = new Map<string, number>();
  #lines: string[] = [];
  #details = false;
  #totals: { pass: number; fail: number } | undefined;
  #failedFiles = 0;

  constructor(print: (text: string) => void) {
    this.#print = print;
  }

  take(line: string): void {
    const skip = leafSkipped.exec(line);
    if (skip) this.#count(skip[1] || 'no reason given');
    if (totalsLine.test(line)) this.#totals = { pass: numberAfter('pass', line), fail: numberAfter('fail', line) };
    if (this.#details) {
      this.#print(line);
      this.#details = line !== '  ...';
      return;
    }
    const result = fileResult.exec(line);
    if (result) this.#finishFile(result);
    else if (this.#lines.length < keptLines) this.#lines.push(line);
  }

  /** @param ok whether tap itself counted the run as good. */
  end(ok: boolean): TapTotals {
    if (this.#totals === undefined) for (const line of this.#lines) this.#print(line);
    const failed = Math.max(this.#totals?.fail ?? 0, this.#failedFiles, ok ? 0 : 1);
    return { passed: this.#totals?.pass ?? 0, failed, skipped: this.#skipped };
  }

  #finishFile([line, not, name, time]: RegExpExecArray): void {
    if (not === undefined) {
      this.#print(`ok ${name}${time === undefined ? '' : ` (${time})`}`);
    } else {
      this.#failedFiles += 1;
      for (const each of this.#lines) this.#print(each);
      this.#print(line);
      this.#details = true;
    }
    this.#lines = [];
  }

  #count(reason: string): void {
    this.#skipped.set(reason, (this.#skipped.get(reason) ?? 0) + 1);
  }
}

function numberAfter(word: string, line: string): number {
  return Number(new RegExp(`\\b${word}: (\\d+)`).exec(line)?.[1] ?? 0);
}

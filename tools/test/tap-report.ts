/**
 * Reads the TAP of a whole run, line by line. A file that passed is printed as one line; a file
 * that failed is printed in full. Pure except for `print`.
 */
export interface TapTotals {
  passed: number;
  failed: number;
  /** Number of skipped tests by reason. */
  skipped: Map<string, number>;
  /** One line for each failure: file, test, assertion. */
  failures: readonly string[];
  failedFiles: readonly string[];
  /** The files that took longest, the slowest first; none when only one ran. */
  slowest: readonly FileTime[];
  /** The run was complete: every file was run. */
  isWhole: boolean;
}

export interface FileTime {
  file: string;
  ms: number;
}

const SLOWEST = 10;
const fileResult = /^(not )?ok \d+ - (\S+)(?: # time=([\d.]+m?s))?/;
const leafSkipped = /^\s+ok \d+ .*# SKIP ?(.*)$/;
const notOk = /^( *)not ok \d+(?: - (.*?))?(?: # time=[\d.]+m?s)?(?: \{)?$/;
const subtest = /^( *)# Subtest: (.*)$/;
const totalsLine = /^# \{ total: \d+/;
const keptLines = 4000;

export class TapReport {
  readonly #print: (text: string) => void;
  readonly #skipped = new Map<string, number>();
  #lines: string[] = [];
  #details = false;
  #totals: { pass: number; fail: number } | undefined;
  readonly #failures: string[] = [];
  readonly #failedFiles: string[] = [];
  readonly #times: FileTime[] = [];

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

  /** @param ok whether tap itself reported success */
  end(ok: boolean): TapTotals {
    if (this.#totals === undefined) for (const line of this.#lines) this.#print(line);
    const failed = Math.max(this.#totals?.fail ?? 0, this.#failedFiles.length, ok ? 0 : 1);
    const passed = this.#totals?.pass ?? 0;
    const isWhole = this.#totals !== undefined;
    return {
      passed,
      failed,
      skipped: this.#skipped,
      failures: this.#failures,
      failedFiles: this.#failedFiles,
      slowest: this.#times.length > 1 ? slowestOf(this.#times) : [],
      isWhole,
    };
  }

  #finishFile([line, not, name, time]: RegExpExecArray): void {
    if (time !== undefined) this.#times.push({ file: name ?? '', ms: millisecondsOf(time) });
    if (not === undefined) {
      this.#print(`ok ${name}${time === undefined ? '' : ` (${time})`}`);
    } else {
      // tap reports a file that reached its limit twice, once under this name.
      if (name !== 'timeout!') {
        this.#failedFiles.push(name ?? '');
        this.#failures.push(...failuresOf(name ?? '', this.#lines));
      }
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

/** The totals of runs that ran side by side. */
export function totalOf(runs: readonly TapTotals[]): TapTotals {
  const sum = (numberOf: (run: TapTotals) => number) => runs.reduce((total, run) => total + numberOf(run), 0);
  const skipped = new Map<string, number>();
  for (const run of runs)
    for (const [reason, count] of run.skipped) skipped.set(reason, (skipped.get(reason) ?? 0) + count);
  return {
    passed: sum(({ passed }) => passed),
    failed: sum(({ failed }) => failed),
    skipped,
    failures: runs.flatMap(({ failures }) => failures),
    failedFiles: runs.flatMap(({ failedFiles }) => failedFiles),
    slowest: slowestOf(runs.flatMap(({ slowest }) => slowest)),
    isWhole: runs.every(({ isWhole }) => isWhole),
  };
}

const slowestOf = (times: readonly FileTime[]): FileTime[] =>
  times.toSorted((one, other) => other.ms - one.ms).slice(0, SLOWEST);

/**
 * Returns the failed assertions of a file, each with its enclosing tests; the file itself if there
 * are none.
 */
export function failuresOf(file: string, lines: readonly string[]): string[] {
  const within: string[] = [];
  const found: string[] = [];
  let deepest = 0;
  for (const line of lines) {
    const entered = subtest.exec(line);
    if (entered) within.splice(indentOf(entered), within.length, entered[2] ?? '');
    const failed = notOk.exec(line);
    if (!failed) continue;
    const depth = indentOf(failed);
    // After a failed assertion TAP lists its enclosing tests, each less indented; they add nothing.
    if (depth >= deepest) found.push([file, ...within.slice(1, depth), failed[2] ?? ''].join(' › '));
    deepest = depth;
  }
  return found.length > 0 ? found : [`${file} ended badly`];
}

/** The indentation in levels of four spaces. */
function indentOf(match: RegExpExecArray): number {
  return (match[1]?.length ?? 0) / 4;
}

/** Parses `12.5ms` or `3.2s`. */
function millisecondsOf(time: string): number {
  return Number.parseFloat(time) * (time.endsWith('ms') ? 1 : 1000);
}

function numberAfter(word: string, line: string): number {
  return Number(new RegExp(`\\b${word}: (\\d+)`).exec(line)?.[1] ?? 0);
}

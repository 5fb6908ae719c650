/**
 * Reads the TAP of a whole run, line by line. A file that passed is printed as one line; a file
 * that failed is printed in full. Files that share a process are subtests of one test, the group;
 * they are reported as if each had run alone. Pure except for `print`.
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
const GROUP = 'files:';
const group = /^(?:# Subtest: |(?:not )?ok \d+ - )files:(\S+)/;
const fileResult = /^(not )?ok \d+ - (\S+)(?: # time=([\d.]+m?s))?/;
const leafSkipped = /^\s+ok \d+ .*# SKIP ?(.*)$/;
const notOk = /^( *)not ok \d+(?: - (.*?))?(?: # time=[\d.]+m?s)?(?: \{)?$/;
const subtest = /^( *)# Subtest: (.*)$/;
const totalsLine = /^# \{ total: \d+/;
const keptLines = 4000;

/** The name of the test that stands for the files of one process: the file, or the group. */
export const nameOfGroup = (files: readonly string[]): string =>
  files.length === 1 ? (files[0] ?? '') : `${GROUP}${files.join(',')}`;

export class TapReport {
  readonly #print: (text: string) => void;
  readonly #skipped = new Map<string, number>();
  #lines: string[] = [];
  #details = false;
  /** The files of the group that runs; their lines are indented once more. */
  #group: { files: readonly string[]; unfinished: Set<string>; hasFailed: boolean } | undefined;
  #totals: { pass: number; fail: number } | undefined;
  readonly #failures: string[] = [];
  readonly #failedFiles: string[] = [];
  readonly #times: FileTime[] = [];

  constructor(print: (text: string) => void) {
    this.#print = print;
  }

  take(given: string): void {
    const line = this.#group === undefined ? given : given.replace(/^ {4}/, '');
    const skip = leafSkipped.exec(line);
    if (skip) this.#count(skip[1] || 'no reason given');
    if (totalsLine.test(line)) this.#totals = { pass: numberAfter('pass', line), fail: numberAfter('fail', line) };
    if (this.#details) {
      this.#print(line);
      this.#details = line !== '  ...';
      return;
    }
    const ofGroup = group.exec(given);
    const result = fileResult.exec(line);
    if (ofGroup) this.#takeGroup(ofGroup[1] ?? '', given);
    else if (result) this.#finishFile(result);
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

  /** A group begins or ends. */
  #takeGroup(names: string, line: string): void {
    const ended = this.#group;
    if (ended === undefined) {
      const files = names.split(',');
      this.#group = { files, unfinished: new Set(files), hasFailed: false };
      return;
    }
    this.#group = undefined;
    if (!line.startsWith('not ok')) return;
    const failed = ended.unfinished.size > 0 ? [...ended.unfinished] : ended.hasFailed ? [] : ended.files;
    this.#failedFiles.push(...failed);
    this.#failures.push(...failed.map((file) => `${file} ended badly, or another file of its process`));
    for (const each of this.#lines) this.#print(each);
    this.#print(line);
    this.#details = true;
    this.#lines = [];
  }

  #finishFile([line, not, name, time]: RegExpExecArray): void {
    this.#group?.unfinished.delete(name ?? '');
    if (time !== undefined) this.#times.push({ file: name ?? '', ms: millisecondsOf(time) });
    if (not === undefined) {
      this.#print(`ok ${name}${time === undefined ? '' : ` (${time})`}`);
    } else {
      if (this.#group !== undefined) this.#group.hasFailed = true;
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

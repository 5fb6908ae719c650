/**
 * Which branches of the product the seeds reached: V8's own block coverage, requested through the
 * inspector. It covers only modules loaded after `begin`, so it begins before the simulation is
 * imported. It does not cover SQL.
 */
import { readFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { simulatedFolders } from '../support/subsystem-coverage.ts';

/**
 * The coverage of one script, as V8 gives it: ranges nest, and the innermost range around a
 * character says whether it ran.
 */
export interface ScriptCoverage {
  url: string;
  functions: { functionName: string; ranges: Range[] }[];
}

interface Range {
  startOffset: number;
  endOffset: number;
  count: number;
}

export interface Unreached {
  /** Path from the root. */
  file: string;
  line: number;
  lastLine: number;
  /** The beginning of its text. */
  text: string;
}

export interface Reach {
  /** Functions, branches and loops, reached or not. */
  blocks: number;
  unreached: Unreached[];
}

const root = path.resolve(import.meta.dirname, '../..');
const FOLDERS = ['lib/platform/time/healthy-timer.ts', ...simulatedFolders.map((folder) => `lib/control/${folder}/`)];
const MAX_TEXT = 90;
const CODE = /[\w'"`]/;
const APART = /[\w'"`]|\n\s*\n/;

export class Coverage {
  readonly #session = new Session();

  private constructor() {
    this.#session.connect();
  }

  static async begin(): Promise<Coverage> {
    const coverage = new Coverage();
    await coverage.#session.post('Profiler.enable');
    await coverage.#session.post('Profiler.startPreciseCoverage', { callCount: false, detailed: true });
    return coverage;
  }

  async read(): Promise<Reach> {
    const { result } = await this.#session.post('Profiler.takePreciseCoverage');
    const scripts = result.filter(({ url }) => FOLDERS.some((folder) => fileOf(url)?.startsWith(folder)));
    const each = scripts.map((script) => {
      const file = fileOf(script.url) ?? '';
      return reachOf(script, file, readFileSync(path.join(root, file), 'utf8'));
    });
    const unreached = each.flatMap((reach) => reach.unreached);
    unreached.sort((one, other) => one.file.localeCompare(other.file) || one.line - other.line);
    return { blocks: each.reduce((sum, { blocks }) => sum + blocks, 0), unreached };
  }
}

/** The unreached parts of one file; a block within an unreached one is not listed again. */
export function reachOf({ functions }: Pick<ScriptCoverage, 'functions'>, file: string, text: string): Reach {
  const ranges = functions.flatMap((each) => each.ranges);
  const idle = ranges.filter(({ count }) => count === 0).sort((one, other) => one.startOffset - other.startOffset);
  const joined: { from: number; to: number }[] = [];
  for (const { startOffset, endOffset } of idle) {
    const last = joined.at(-1);
    // V8 splits one branch into several ranges, and adds one that contains only brackets after a
    // `return`.
    if (last !== undefined && !APART.test(text.slice(last.to, startOffset))) last.to = Math.max(last.to, endOffset);
    else if (CODE.test(text.slice(startOffset, endOffset))) joined.push({ from: startOffset, to: endOffset });
  }
  const unreached = joined.map(({ from, to }) => {
    const begin = from + text.slice(from).search(CODE);
    const words = text.slice(text.lastIndexOf('\n', begin) + 1, text.indexOf('\n', begin)).trim();
    return { file, line: lineAt(text, begin), lastLine: lineAt(text, to), text: words.slice(0, MAX_TEXT) };
  });
  return { blocks: ranges.length, unreached };
}

export function reachLines({ blocks, unreached }: Reach): string[] {
  const named = unreached.map(({ file, line, lastLine, text }) => {
    const lines = lastLine === line ? String(line) : `${line}-${lastLine}`;
    return `  ${file}:${lines}  ${text}`;
  });
  return [
    `${unreached.length} places of ${simulatedFolders.join(', ')} were not reached (${blocks} blocks in all)`,
    ...named,
  ];
}

function lineAt(text: string, offset: number): number {
  return text.slice(0, offset).split('\n').length;
}

function fileOf(url: string): string | undefined {
  if (!url.startsWith('file:')) return undefined;
  return path.relative(root, fileURLToPath(url));
}

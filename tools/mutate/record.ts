/** The result of each mutant, one JSON line each, so that an interrupted run can be continued. */
import { appendFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Mutant } from './mutant.ts';
import { described } from './mutant.ts';

export type TrialStatus = 'caught' | 'timed out' | 'survived' | 'untested';

export interface Result {
  id: string;
  status: TrialStatus;
  /** The test file that detected the mutant. */
  by?: string;
  /** The first failed assertion of the trial. */
  failure?: string;
  /** The wide tests were run too. */
  isWide: boolean;
  ms: number;
}

export class Results {
  readonly #path: string;
  readonly #all = new Map<string, Result>();

  constructor(file: string) {
    this.#path = file;
    mkdirSync(path.dirname(file), { recursive: true });
    const text = existsSync(file) ? readFileSync(file, 'utf8') : '';
    for (const line of text.split('\n').filter((one) => one !== '')) {
      const result = JSON.parse(line) as Partial<Result> & Pick<Result, 'id'>;
      // A line of an earlier version of this tool has no status: its mutant is tried again.
      if (result.status !== undefined) this.#all.set(result.id, result as Result);
    }
  }

  of({ id }: Mutant): Result | undefined {
    return this.#all.get(id);
  }

  add(result: Result): void {
    this.#all.set(result.id, result);
    appendFileSync(this.#path, `${JSON.stringify(result)}\n`);
  }
}

/** A table by folder, the share of caught mutants, and each mutant that was not caught. */
export function reportLines(mutants: readonly Mutant[], results: Pick<Results, 'of'>): string[] {
  const tried = mutants.flatMap((mutant) => {
    const result = results.of(mutant);
    return result === undefined ? [] : [{ mutant, result, folder: path.posix.dirname(mutant.file) }];
  });
  const folders = [...new Set(mutants.map(({ file }) => path.posix.dirname(file)))].sort();
  const rows = folders.map((folder) => {
    const all = mutants.filter(({ file }) => path.posix.dirname(file) === folder).length;
    const here = tried.filter((one) => one.folder === folder);
    return rowOf(
      folder,
      all,
      here.map(({ result }) => result.status),
    );
  });
  const total = rowOf(
    'together',
    mutants.length,
    tried.map(({ result }) => result.status),
  );
  const left = tried.filter(({ result }) => ['survived', 'untested'].includes(result.status));
  left.sort((one, other) => (described(one.mutant) < described(other.mutant) ? -1 : 1));
  return [
    '| Folder | Mutants | Tried | Caught | by time-out | Survived | Caught of those tried |',
    '|---|---|---|---|---|---|---|',
    ...rows,
    total,
    ...left.map(({ mutant, result }) => `${result.status}  ${mutant.id}  ${described(mutant)}`),
  ];
}

function rowOf(name: string, all: number, statuses: readonly TrialStatus[]): string {
  const count = (...wanted: TrialStatus[]) => statuses.filter((status) => wanted.includes(status)).length;
  const caught = count('caught', 'timed out');
  const share = statuses.length === 0 ? '' : `${((100 * caught) / statuses.length).toFixed(1)} %`;
  const cells = [name, all, statuses.length, caught, count('timed out'), statuses.length - caught, share];
  return `| ${cells.join(' | ')} |`;
}

/**
 * The files to mutate, and the test files that must detect the mutants: those that mirror the
 * file's folder and load the file.
 */
import { globSync } from 'node:fs';
import path from 'node:path';
import { LONG } from '../../tools/test/long.ts';
import { importsOf, readSources } from '../imports/source.ts';

const MUTATED = [
  'lib/control/{roster,tasks,waitlist,events,duty,push,chef,organizations}/{*.ts,!(routes)/*.ts}',
  'lib/control/{roster,tasks,waitlist,events,duty,push}/migrations/*.sql',
  'lib/control/push/schedules/migrations/*.sql',
  'lib/platform/time/healthy-timer.ts',
  'lib/platform/waits/*.ts',
  'lib/agent/runner/runner.ts',
  'lib/agent/push/*.ts',
];
/** Such a module loads the files beside it. */
const READS_MIGRATIONS = /[=:] readMigrations\(/;
/** Waits are also tested by the tests of the folders that use them. */
const MORE_FOLDERS: Record<string, readonly string[]> = {
  'lib/platform/waits': ['test/control/tasks/**', 'test/control/waitlist'],
};
/** Slower tests of another kind, for mutants that the mirrored files do not detect. */
const WIDE = ['test/interleavings/pairs.test.ts', 'test/sim/seeds-1.test.ts', 'test/sim/seeds-2.test.ts'];

export function mutatedFiles(root: string, only: readonly string[] = []): string[] {
  const files = globSync(MUTATED, { cwd: root });
  return files.filter((file) => only.length === 0 || only.some((part) => file.includes(part))).sort();
}

export class TestMap {
  readonly #imports: Map<string, string[]>;
  readonly #long: ReadonlySet<string>;
  readonly #reached = new Map<string, Set<string>>();
  /** How many mutants of each folder each test file has detected. */
  readonly #catches = new Map<string, Map<string, number>>();
  readonly #root: string;

  constructor(root: string) {
    const sources = readSources(root, ['lib', 'test', 'tools']);
    this.#root = root;
    this.#long = new Set(globSync([...LONG], { cwd: root }));
    this.#imports = new Map(
      sources.map(({ name, lines }) => {
        const text = lines.join('\n');
        const folder = path.posix.dirname(name);
        const modules = importsOf(text).filter((specifier) => specifier.startsWith('.'));
        const migrations = READS_MIGRATIONS.test(text) ? globSync(`${folder}/migrations/*.sql`, { cwd: root }) : [];
        return [name, [...modules.map((specifier) => path.posix.join(folder, specifier)), ...migrations]];
      }),
    );
  }

  /** The file will be tried early for other mutants of the folder. */
  noteCatch(file: string, test: string): void {
    const folder = path.posix.dirname(file);
    const counts = this.#catches.get(folder) ?? new Map<string, number>();
    this.#catches.set(folder, counts.set(test, (counts.get(test) ?? 0) + 1));
  }

  /**
   * The test file of the same name comes first, then the files that detected most mutants of the
   * folder, then those of the mirrored folder itself, then those that load the fewest modules.
   */
  of(file: string, { isWide = false } = {}): string[] {
    const folder = path.posix.dirname(file).replace(/\/migrations$/, '');
    const noun = folder.split('/').slice(0, 3).join('/');
    const folders = [`${noun.replace(/^lib/, 'test')}/**`, ...(MORE_FOLDERS[folder] ?? [])];
    const isOne = folder === 'lib/agent/runner';
    const base = path.posix.basename(file, '.ts');
    const tests = folders.flatMap((each) => globSync(`${each}/*.test.ts`, { cwd: this.#root }));
    const mirrored = tests
      .filter((test) => !isOne || path.posix.basename(test).startsWith(base))
      .filter((test) => !this.#long.has(test) && this.#loads(test).has(file));
    const isSame = (test: string) => (path.posix.basename(test, '.test.ts') === base ? 1 : 0);
    const catches = (test: string) => this.#catches.get(path.posix.dirname(file))?.get(test) ?? 0;
    const mirror = folder.replace(/^lib/, 'test');
    const isBeside = (test: string) => (path.posix.dirname(test) === mirror ? 1 : 0);
    const modules = (test: string) => this.#loads(test).size;
    mirrored.sort(
      (one, other) =>
        isSame(other) - isSame(one) ||
        catches(other) - catches(one) ||
        isBeside(other) - isBeside(one) ||
        modules(one) - modules(other) ||
        one.localeCompare(other),
    );
    return isWide ? WIDE.filter((test) => this.#loads(test).has(file)) : mirrored;
  }

  #loads(test: string): Set<string> {
    const known = this.#reached.get(test);
    if (known !== undefined) return known;
    const found = new Set<string>();
    const left = [test];
    for (let name = left.pop(); name !== undefined; name = left.pop()) {
      if (found.has(name)) continue;
      found.add(name);
      left.push(...(this.#imports.get(name) ?? []));
    }
    this.#reached.set(test, found);
    return found;
  }
}

/**
 * `npm run mutate`: makes small changes to the product, one at a time, in a copy of the project,
 * and checks whether the tests detect them. Exit codes: 0 at least 95 % of the tried mutants were
 * caught, 1 fewer, 2 usage.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { startTestPostgres } from '../../test/support/postgres-server.ts';
import { provideRedis } from '../../tools/test/redis.ts';
import { codeEdits, isSource } from './code-mutants.ts';
import { applied, described, type Mutant, mutantOf, shuffled } from './mutant.ts';
import { type Result, Results, reportLines, type TrialStatus } from './record.ts';
import { mutatedFiles, TestMap } from './scope.ts';
import { sqlEdits } from './sql-mutants.ts';
import { Tree } from './tree.ts';
import { runTrial, type Trial } from './trial.ts';

const USAGE = `npm run mutate -- [options]   makes one small change to the product at a time, in a copy, and checks whether a test fails

  --sample N      try only N of the changes, chosen by the seed; all of them take a night
  --seed S        the seed of the sample (default 1)
  --only PART     only files whose path contains PART; may be given several times
  --wide          try survivors also with the pairs of test/interleavings and with seeds of the simulation
  --again         try survivors again, because tests were added
  --jobs N        try N changes at a time, each in its own copy (default 1)
  --minutes M     start no trial after M minutes
  --results FILE  where results are kept, and where the next run continues (default .runtime/mutants.jsonl)
  --list          list the changes and try none
  --report        print the known results and try nothing
  --help          this text

exit code: 0 at least 95 % of the tried changes were detected, 1 fewer, 2 wrong usage
`;

const root = path.resolve(import.meta.dirname, '../..');
const MINUTE = 60_000;
const GOAL = 0.95;
/**
 * A test file that takes longer than this many times its duration on the unchanged product counts
 * as hanging.
 */
const LIMIT_FACTOR = 5;
const LEAST_LIMIT_MS = 15_000;
/** Time limit of a test file whose duration is not known yet. */
const FIRST_LIMIT_MS = 120_000;
const BASELINE_LIMIT_MS = 600_000;
const BASELINE_TRIALS = 2;

interface Options {
  isWide: boolean;
  isAgain: boolean;
  jobs: number;
  untilMs: number;
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      sample: { type: 'string' },
      seed: { type: 'string', default: '1' },
      only: { type: 'string', multiple: true, default: [] },
      wide: { type: 'boolean', default: false },
      again: { type: 'boolean', default: false },
      jobs: { type: 'string', default: '1' },
      minutes: { type: 'string' },
      results: { type: 'string', default: path.join(root, '.runtime/mutants.jsonl') },
      list: { type: 'boolean', default: false },
      report: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return say(USAGE);
  const all = allMutants(values.only);
  const count = values.sample === undefined ? all.length : whole('sample', values.sample);
  const chosen = shuffled(all, values.seed).slice(0, count);
  if (values.list) return say(chosen.map((mutant) => `${mutant.id}  ${described(mutant)}\n`).join(''));
  const results = new Results(values.results);
  if (!values.report) {
    const untilMs = values.minutes === undefined ? Number.POSITIVE_INFINITY : whole('minutes', values.minutes) * MINUTE;
    const jobs = whole('jobs', values.jobs);
    await tryAll(chosen, results, { isWide: values.wide, isAgain: values.again, jobs, untilMs });
  }
  say(`${reportLines(all, results).join('\n')}\n`);
  const statuses = chosen.flatMap((mutant) => results.of(mutant)?.status ?? []);
  const caught = statuses.filter((status) => status === 'caught' || status === 'timed out').length;
  return caught >= GOAL * statuses.length ? 0 : 1;
}

function allMutants(only: readonly string[]): Mutant[] {
  return mutatedFiles(root, only).flatMap((file) => {
    const source = readFileSync(path.join(root, file), 'utf8');
    if (file.endsWith('.sql')) return sqlEdits(source).map((edit) => mutantOf(file, source, edit));
    const mutants = codeEdits(source).map((edit) => mutantOf(file, source, edit));
    return mutants.filter((mutant) => isSource(applied(mutant, source)));
  });
}

async function tryAll(mutants: readonly Mutant[], results: Results, options: Options): Promise<void> {
  const { isWide, isAgain, jobs, untilMs } = options;
  const left = mutants.filter((mutant) => {
    const known = results.of(mutant);
    if (known === undefined) return true;
    return known.status === 'survived' && (isAgain || (isWide && !known.isWide));
  });
  say(`${left.length} of ${mutants.length} mutants are to be tried\n`);
  if (left.length === 0) return;
  say(`${(await provideRedis()).said}\n`);
  const postgres = await startTestPostgres();
  const known = { map: new TestMap(root), limits: new Map<string, number>() };
  const env = { ...process.env, CNAPI_TEST_DATABASE_URL: postgres.url };
  const began = systemClock.now();
  const stopping = new AbortController();
  process.once('SIGINT', () => stopping.abort());
  process.once('SIGTERM', () => stopping.abort());
  const queue = left.entries();
  const work = async () => {
    using tree = new Tree(root);
    const tests = new Tests(tree, env, known);
    for (const [index, mutant] of queue) {
      if (stopping.signal.aborted || systemClock.now() - began > untilMs) return;
      const result = await tests.judge(mutant, { isWide, isSurvivor: results.of(mutant) !== undefined && !isAgain });
      if (stopping.signal.aborted) return;
      if (result === undefined) {
        say(`${index + 1}/${left.length} not decided: a test failed without the change, too  ${described(mutant)}\n`);
        continue;
      }
      results.add(result);
      const by = result.by === undefined ? '' : ` by ${result.failure ?? result.by}`;
      say(`${index + 1}/${left.length} ${result.status}${by} (${Math.round(result.ms)} ms)  ${described(mutant)}\n`);
    }
  };
  try {
    await Promise.all(Array.from({ length: jobs }, work));
  } finally {
    await postgres.close();
  }
}

/** What all copies learn about the tests. */
interface KnownTests {
  map: TestMap;
  /** How long each test file may take. */
  limits: Map<string, number>;
}

/** Runs the tests in one copy. */
class Tests {
  readonly #tree: Tree;
  readonly #env: NodeJS.ProcessEnv;
  readonly #known: KnownTests;

  constructor(tree: Tree, env: NodeJS.ProcessEnv, known: KnownTests) {
    this.#tree = tree;
    this.#env = env;
    this.#known = known;
  }

  /**
   * `isSurvivor`: the mirrored test files have already been run without detecting it. Undefined: no
   * test detected it, and one of them fails on the unchanged product as well.
   */
  async judge(
    mutant: Mutant,
    { isWide, isSurvivor }: { isWide: boolean; isSurvivor: boolean },
  ): Promise<Result | undefined> {
    const { map } = this.#known;
    const began = systemClock.now();
    const mirrored = isSurvivor ? [] : map.of(mutant.file);
    const tests = [...mirrored, ...(isWide ? map.of(mutant.file, { isWide }) : [])];
    const resultOf = (status: TrialStatus, found: Pick<Result, 'by' | 'failure'> = {}): Result => {
      return { id: mutant.id, status, ...found, isWide, ms: systemClock.now() - began };
    };
    let isDecided = true;
    for (const test of tests) {
      const { outcome, failure } = await this.#outcome(test, mutant);
      if (outcome === 'proves nothing') isDecided = false;
      if (outcome === 'passed' || outcome === 'proves nothing') continue;
      map.noteCatch(mutant.file, test);
      const found = { by: test, ...(failure === undefined ? {} : { failure }) };
      return resultOf(outcome === 'failed' ? 'caught' : outcome, found);
    }
    if (!isDecided) return undefined;
    return resultOf(isSurvivor || tests.length > 0 ? 'survived' : 'untested');
  }

  /**
   * The machine may have stood still: a slow test must fail twice, a wait in vain must be one
   * again, and then the unchanged product must pass.
   */
  async #outcome(
    test: string,
    mutant: Mutant,
  ): Promise<Omit<Trial, 'outcome' | 'ms'> & { outcome: Trial['outcome'] | 'proves nothing' }> {
    const first = await this.#run(test, mutant);
    if (first.outcome === 'passed') return first;
    const isKnown = this.#known.limits.has(test);
    const limitMs = await this.#limitOf(test);
    if (limitMs === undefined) return { outcome: 'proves nothing' };
    const isCertain = limitMs === LEAST_LIMIT_MS && isKnown && first.outcome === 'failed';
    const last = isCertain ? first : await this.#run(test, mutant);
    return last.outcome !== 'timed out' || (await this.#passesUnchanged(test)) ? last : { outcome: 'proves nothing' };
  }

  async #run(test: string, mutant: Mutant): Promise<Trial> {
    const { limits } = this.#known;
    const source = this.#tree.read(mutant.file);
    this.#tree.write(mutant.file, applied(mutant, source));
    try {
      const trial = await this.#trial(test, limits.get(test) ?? FIRST_LIMIT_MS);
      if (trial.outcome === 'passed' && !limits.has(test)) limits.set(test, limitAfter(trial.ms));
      return trial;
    } finally {
      this.#tree.write(mutant.file, source);
    }
  }

  async #passesUnchanged(test: string): Promise<boolean> {
    const { outcome } = await this.#trial(test, this.#known.limits.get(test) ?? FIRST_LIMIT_MS);
    return outcome === 'passed';
  }

  /** Undefined: it fails on the unchanged product, each time. */
  async #limitOf(test: string): Promise<number | undefined> {
    const { limits } = this.#known;
    for (let trial = 0; trial < BASELINE_TRIALS && !limits.has(test); trial += 1) {
      const { outcome, ms } = await this.#trial(test, BASELINE_LIMIT_MS);
      if (outcome === 'passed') limits.set(test, limitAfter(ms));
      else say(`${test} ${outcome} on the unchanged product\n`);
    }
    return limits.get(test);
  }

  #trial(test: string, limitMs: number): Promise<Trial> {
    return runTrial(test, { root: this.#tree.root, env: this.#env, limitMs });
  }
}

const limitAfter = (ms: number): number => Math.max(LEAST_LIMIT_MS, ms * LIMIT_FACTOR);

function whole(option: string, text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new UsageError(`--${option}: ${text} is not a whole number`);
  return Number(text);
}

class UsageError extends Error {}

function say(text: string): number {
  process.stdout.write(text);
  return 0;
}

main().then(
  // Does not call exit: the output may still be in the pipe.
  (code) => {
    process.exitCode = code;
  },
  (error: unknown) => {
    const { code, message, stack } = error as Error & { code?: string };
    const isUsage = error instanceof UsageError || code?.startsWith('ERR_PARSE_ARGS') === true;
    process.stderr.write(`mutate: ${isUsage ? `${message}\nTry --help.` : stack}\n`);
    process.exit(isUsage ? 2 : 1);
  },
);

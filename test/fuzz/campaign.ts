/**
 * Feeds one part its share of inputs: fast-check generates the values, in runs of a hundred with
 * consecutive seeds, and shrinks a value that breaks a rule. Before and after, the process under
 * test reports what it holds.
 */
import fc from 'fast-check';
import type { Feeder, Part } from './part.ts';
import { Wrong } from './part.ts';
import type { Vitals } from './probe.ts';
import type { Target } from './target.ts';

export interface Outcome {
  part: string;
  inputs: number;
  seconds: number;
  /** One per broken rule, with the shrunk input and the seed. */
  findings: string[];
  before: Vitals;
  after: Vitals;
}

export interface Plan {
  inputs: number;
  seed: number;
  /** No new batch starts after this many minutes, whatever the number of inputs. */
  minutes?: number | undefined;
  /** Called about once a second. */
  onProgress?: (inputs: number) => void;
}

const RUNS_A_BATCH = 100;
/** The limit of batches with findings; more of them would tell nothing new. */
const MAX_FAILURES = 10;
/** Resources of first uses stay allocated: compiled code, statements, labels of metrics. */
const WARM_UP_SHARE = 0.25;
const MIB = 1024 * 1024;
const SETTLES_WITHIN_MS = 20_000;

export async function runPart(part: Part, start: () => Promise<Target>, plan: Plan): Promise<Outcome> {
  const feeder = await part.open(start);
  try {
    return await new Campaign(part, feeder, plan).run();
  } finally {
    await feeder.close();
  }
}

class Campaign {
  readonly #part: Part;
  readonly #feeder: Feeder;
  readonly #plan: Plan;
  /** Findings by the violation without its ids, so that a repetition is not reported again. */
  readonly #findings = new Map<string, string>();
  readonly #begin = Date.now();
  #inputs = 0;
  #batch = 0;
  #failures = 0;

  constructor(part: Part, feeder: Feeder, plan: Plan) {
    this.#part = part;
    this.#feeder = feeder;
    this.#plan = plan;
  }

  async run(): Promise<Outcome> {
    const { inputs } = this.#plan;
    await this.#feedUpTo(Math.ceil(inputs * WARM_UP_SHARE), WARM_UP_SHARE);
    this.#note(await this.#feeder.inspect());
    const before = await this.#feeder.vitals();
    const { after, seconds, leaks } = await this.#watchUpTo(inputs, 1, before);
    // What grows with the inputs grows again; a table that is made when it is first needed does
    // not.
    if (leaks.length > 0) this.#note((await this.#watchUpTo(2 * this.#inputs, 2, after)).leaks);
    return {
      part: this.#part.name,
      inputs: this.#inputs,
      seconds,
      findings: [...this.#findings.values()],
      before,
      after,
    };
  }

  /** Like `#feedUpTo`. Returns what has grown since `before`. */
  async #watchUpTo(inputs: number, share: number, before: Vitals) {
    const fedBefore = this.#inputs;
    await this.#feedUpTo(inputs, share);
    const seconds = (Date.now() - this.#begin) / 1000;
    this.#note(await this.#feeder.inspect());
    const fed = this.#inputs - fedBefore;
    const after = await this.#settled(before, fed);
    return { after, seconds, leaks: leaksOf(before, after, { inputs: fed, slack: this.#feeder.slack }) };
  }

  /** Runs until the number of inputs or this share of the time is reached. */
  async #feedUpTo(inputs: number, share: number): Promise<void> {
    const { minutes = Number.POSITIVE_INFINITY } = this.#plan;
    const isOver = () =>
      this.#inputs >= inputs || this.#failures >= MAX_FAILURES || Date.now() - this.#begin >= minutes * 60_000 * share;
    await Promise.all(Array.from({ length: this.#feeder.lanes }, (_, lane) => this.#feedLane(lane, isOver)));
  }

  async #feedLane(lane: number, isOver: () => boolean): Promise<void> {
    while (!isOver()) {
      const seed = this.#plan.seed + this.#batch++;
      await this.#feedBatch(lane, seed);
      this.#plan.onProgress?.(this.#inputs);
    }
  }

  async #feedBatch(lane: number, seed: number): Promise<void> {
    const property = fc.asyncProperty(this.#feeder.arbitrary, async (value) => {
      this.#inputs += await this.#feeder.feed(value, lane);
    });
    const { batch, examples = [] } = this.#feeder;
    const first = this.#batch === 1 ? examples.map((value): [unknown] => [value]) : [];
    const details = await fc.check(property, {
      seed,
      numRuns: Math.max(batch ?? RUNS_A_BATCH, first.length),
      examples: first,
      endOnFailure: batch !== undefined,
    });
    if (!details.failed) return;
    this.#failures += 1;
    this.#find(kindOf(details.errorInstance), this.#storyOf(details, seed));
  }

  #storyOf(details: fc.RunDetails<[unknown]>, seed: number): string {
    const { errorInstance, counterexample, numShrinks } = details;
    const error = errorInstance instanceof Wrong ? errorInstance.message : String((errorInstance as Error)?.stack);
    const input = fc.stringify(counterexample?.[0]);
    return [
      error,
      `  input, shrunk ${numShrinks} times: ${input.length > 3_000 ? `${input.slice(0, 3_000)}… (${input.length} characters)` : input}`,
      `  again: npm run fuzz -- --part ${this.#part.name} --seed ${seed} --inputs 1`,
    ].join('\n');
  }

  #note(findings: readonly string[]): void {
    for (const finding of findings) this.#find(finding, finding);
  }

  #find(kind: string, story: string): void {
    const known = kind.replace(/[0-9a-f]{8}-[0-9a-f-]{27}|\d+/g, 'N');
    if (!this.#findings.has(known)) this.#findings.set(known, story);
  }

  /** Waits for connections that are being closed. */
  async #settled(before: Vitals, inputs: number): Promise<Vitals> {
    const end = Date.now() + SETTLES_WITHIN_MS;
    for (;;) {
      const after = await this.#feeder.vitals();
      if (leaksOf(before, after, { inputs, slack: this.#feeder.slack }).length === 0 || Date.now() > end) return after;
      await new Promise((done) => setTimeout(done, 2_000));
    }
  }
}

function kindOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error instanceof Wrong ? error.kind : `${error.name}: ${error.message}`;
}

interface Grown {
  inputs: number;
  slack?: Partial<Vitals> | undefined;
}

/** What grew with the inputs. Bytes may drift: compiled code and caches do not fill up at once. */
export function leaksOf(before: Vitals, after: Vitals, { inputs, slack = {} }: Grown): string[] {
  const bounds: [keyof Vitals, number][] = [
    ['files', 8],
    ['sockets', 8],
    ['timers', 8],
    ['entries', 24 + inputs / 500],
    ['heapBytes', 4 * MIB + 40 * inputs],
    ['externalBytes', 4 * MIB + 10 * inputs],
  ];
  return bounds.flatMap(([name, allowed]) => {
    const grown = after[name] - before[name];
    if (grown <= allowed + (slack[name] ?? 0)) return [];
    return [`${name} grew from ${before[name]} to ${after[name]} over ${inputs} inputs`];
  });
}

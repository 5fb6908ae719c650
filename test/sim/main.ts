/**
 * `npm run sim`: simulated worlds, seed by seed. Exit codes: 0 everything held, 1 something was violated, 2 usage.
 * With a defect, only what loads after it is applied has it, and only what loads after coverage has begun is counted: so the
 * simulation itself is imported late.
 */
import { parseArgs } from 'node:util';
import { apply, defects } from './defects.ts';
import { ARRIVING, RARE } from './plan.ts';
import { Coverage, reachLines } from './reached.ts';
import type { SeedRun, Simulation } from './run.ts';

const USAGE = `npm run sim -- [options]      simulated worlds: the product's code, a virtual clock, faults by seed

  --seeds N       how many seeds; 200
  --from S        the first of them; 1
  --seed S        this one only, and its story if it fails
  --trace         with --seed: everything that happens, also frames and statements
  --shrink        with --seed: leave out what the violation does not need, and tell that story
  --rare          seeds rare-N: what the common ones hardly come to, see rare.ts
  --arriving      seeds arriving-N: more agents arrive than the instances can admit, see arriving.ts
  --reached       say which branches of roster, tasks and waitlist no seed reached
  --defect NAME   with a deliberate defect in the product (its number or its name), until it is found
  --defects       list them
  --help
`;

const SECOND = 1_000;
const HOUR = 3_600_000;

interface Options {
  seeds: string[];
  trace: boolean;
  shrink: boolean;
  reached: boolean;
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      seeds: { type: 'string', default: '200' },
      from: { type: 'string', default: '1' },
      seed: { type: 'string' },
      trace: { type: 'boolean', default: false },
      shrink: { type: 'boolean', default: false },
      reached: { type: 'boolean', default: false },
      rare: { type: 'boolean', default: false },
      arriving: { type: 'boolean', default: false },
      defect: { type: 'string' },
      defects: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return say(USAGE);
  if (values.defects) return say(defects.map(({ name, breaks }, index) => `${index}  ${breaks}  ${name}\n`).join(''));
  if (values.defect !== undefined) apply(defectOf(values.defect));
  const from = whole('from', values.from);
  const kind = values.arriving ? ARRIVING : values.rare ? RARE : '';
  const seeds =
    values.seed === undefined
      ? Array.from({ length: whole('seeds', values.seeds) }, (_, index) => `${kind}${from + index}`)
      : [values.seed];
  return run({ seeds, trace: values.trace, shrink: values.shrink, reached: values.reached });
}

async function run({ seeds, trace, shrink, reached }: Options): Promise<number> {
  const began = performance.now();
  const coverage = reached ? await Coverage.begin() : undefined;
  const { Simulation } = await import('./run.ts');
  const simulation = await Simulation.open();
  const totals = { seeds: 0, virtualMs: 0, events: 0 };
  for (const seed of seeds) {
    const one = await simulation.run(seed, trace ? (line) => say(`${line}\n`) : undefined);
    totals.seeds += 1;
    totals.virtualMs += one.outcome.virtualMs;
    totals.events += one.outcome.events;
    if (seeds.length === 1) say(`digest ${one.outcome.digest}\n`);
    if (one.outcome.violations.length === 0) continue;
    await tellFailure(simulation, one, shrink);
    tellTotals(totals, performance.now() - began);
    return 1;
  }
  tellTotals(totals, performance.now() - began);
  if (coverage !== undefined) say(`${reachLines(await coverage.read()).join('\n')}\n`);
  await simulation.close();
  return 0;
}

async function tellFailure(simulation: Simulation, found: SeedRun, shrink: boolean): Promise<void> {
  const left = ({ plan }: Pick<SeedRun, 'plan'>) =>
    `${plan.faults.length} faults, ${plan.operations.length} operations`;
  const progress = (plan: SeedRun['plan']) => say(`shrinks to ${left({ plan })}\n`);
  const told = shrink ? await simulation.shrink(found, progress) : found;
  const { plan, outcome } = told;
  say(`${outcome.story.join('\n')}\n\n`);
  say(`seed ${plan.seed} (${plan.profile}, ${plan.instances} instances, ${plan.agents} agents, ${left(told)}):\n`);
  for (const { invariant, what, at } of outcome.violations)
    say(`  ${invariant} at ${(at / SECOND).toFixed(1)} s: ${what}\n`);
  say(`again: npm run sim -- --seed ${plan.seed} --trace      smaller: npm run sim -- --seed ${plan.seed} --shrink\n`);
}

function tellTotals(
  { seeds, virtualMs, events }: { seeds: number; virtualMs: number; events: number },
  ms: number,
): void {
  const perSecond = Math.round(events / (ms / SECOND));
  const took = `${(ms / SECOND).toFixed(0)} s, ${perSecond} events/s`;
  say(`${seeds} seeds, ${(virtualMs / HOUR).toFixed(2)} virtual hours, ${events} events in ${took}\n`);
}

function defectOf(text: string) {
  const found = defects[Number(text)] ?? defects.find(({ name }) => name === text);
  if (found === undefined) throw new UsageError(`--defect: there is no defect ${text}; --defects lists them`);
  return found;
}

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
  (code) => process.exit(code),
  (error: unknown) => {
    const { code, message, stack } = error as Error & { code?: string };
    const isUsage = error instanceof UsageError || code?.startsWith('ERR_PARSE_ARGS') === true;
    process.stderr.write(`sim: ${isUsage ? `${message}\nTry --help.` : stack}\n`);
    process.exit(isUsage ? 2 : 1);
  },
);

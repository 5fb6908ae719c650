/**
 * `npm run sim`: simulated worlds, seed by seed. Exit codes: 0 no violation,
 * 1 a violation, 2 wrong usage.
 * A defect and the coverage only affect modules that are loaded afterwards, so the simulation
 * itself is imported late.
 */
import { parseArgs } from 'node:util';
import { apply, defects } from './defects.ts';
import { Coverage, reachLines } from './reached.ts';
import type { SeedRun, Simulation } from './run.ts';
import { ANNEALER, ARRIVING, DUTIES, PUSH, RARE, VMS, WORKFLOWS } from './seed-kinds.ts';

const USAGE = `npm run sim -- [options]      runs the product's code in simulated worlds, with a virtual clock and with faults chosen by a seed

  --seeds N       the number of seeds (default 200)
  --from S        the first seed (default 1)
  --seed S        only this seed; prints what happened if it fails
  --trace         with --seed: print every event, including frames and statements
  --shrink        with --seed: remove faults and operations that the violation does not need, and print what is left
  --rare          seeds rare-N: scenarios that the common seeds rarely reach (test/sim/rare.ts)
  --arriving      seeds arriving-N: more agents arrive than the instances can admit (test/sim/arriving.ts)
  --duties        seeds duties-N: duties whose holders fail (test/sim/duties.ts)
  --push          seeds push-N: push jobs (test/sim/push.ts)
  --vms           seeds vms-N: VMs on servers whose agents fail (test/sim/vms.ts)
  --workflows     seeds workflows-N: jobs that reboot servers (test/sim/workflows.ts)
  --annealer      seeds annealer-N: deployments of roles on servers (test/sim/deployments.ts)
  --reached       list the branches of roster, tasks, duty, push, annealer, workflows and waitlist that no seed reached
  --defect NAME   put this deliberate defect (number or name) into the product, and run seeds until one finds it
  --defects       list the deliberate defects
  --help          this text

exit code: 0 no invariant was violated, 1 an invariant was violated, 2 wrong usage
`;

/** The option of each is its name without the hyphen. */
const KINDS = [VMS, PUSH, DUTIES, ARRIVING, RARE, WORKFLOWS, ANNEALER];
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
      duties: { type: 'boolean', default: false },
      push: { type: 'boolean', default: false },
      vms: { type: 'boolean', default: false },
      workflows: { type: 'boolean', default: false },
      annealer: { type: 'boolean', default: false },
      defect: { type: 'string' },
      defects: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return say(USAGE);
  if (values.defects) return say(defects.map(({ name, breaks }, index) => `${index}  ${breaks}  ${name}\n`).join(''));
  if (values.defect !== undefined) apply(defectOf(values.defect));
  const from = whole('from', values.from);
  const [kind = ''] = KINDS.filter((one) => values[one.slice(0, -1) as 'rare']);
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
    await printFailure(simulation, one, shrink);
    printTotals(totals, performance.now() - began);
    return 1;
  }
  printTotals(totals, performance.now() - began);
  if (coverage !== undefined) say(`${reachLines(await coverage.read()).join('\n')}\n`);
  await simulation.close();
  return 0;
}

async function printFailure(simulation: Simulation, found: SeedRun, shrink: boolean): Promise<void> {
  const left = ({ plan }: Pick<SeedRun, 'plan'>) =>
    `${plan.faults.length} faults, ${plan.operations.length} operations`;
  const progress = (plan: SeedRun['plan']) => say(`shrinks to ${left({ plan })}\n`);
  const shown = shrink ? await simulation.shrink(found, progress) : found;
  const { plan, outcome } = shown;
  say(`${outcome.story.join('\n')}\n\n`);
  say(`seed ${plan.seed} (${plan.profile}, ${plan.instances} instances, ${plan.agents} agents, ${left(shown)}):\n`);
  for (const { invariant, what, at } of outcome.violations)
    say(`  ${invariant} at ${(at / SECOND).toFixed(1)} s: ${what}\n`);
  say(`again: npm run sim -- --seed ${plan.seed} --trace      smaller: npm run sim -- --seed ${plan.seed} --shrink\n`);
}

function printTotals(
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

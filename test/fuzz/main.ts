/** `npm run fuzz`: every part, or one, with any number of inputs; see docs/testing/fuzz.md. */
import { parseArgs } from 'node:util';
import { type Outcome, runPart } from './campaign.ts';
import { findDefects } from './defects.ts';
import { parts } from './parts.ts';
import { Target } from './target.ts';

const USAGE = `npm run fuzz -- [OPTION]...   sends hostile input to an instance, agents and a name server, and checks that they survive it

  --inputs N           number of inputs, over all parts by their shares, or of the one part (default 100000)
  --seed S             the first seed (default 1); the same seed generates the same inputs
  --minutes M          start no batch of inputs after M minutes of a part, even if --inputs is not reached
  --part NAME          only this part: ${parts.map(({ name }) => name).join(', ')}
  --defects            instead: remove limits of the product, one at a time in a copy, and check that the part cost finds each
  --help               this text

exit code: 0 nothing found, 1 something found, 2 wrong usage`;

const MIB = 1024 * 1024;

interface Options {
  inputs: number;
  seed: number;
  part: string | undefined;
  minutes: number | undefined;
  defects: boolean;
}

const options = parseOptions();
if (options !== undefined) process.exit(await (options.defects ? showDefects() : fuzz(options)));

function parseOptions(): Options | undefined {
  try {
    const { values } = parseArgs({
      options: {
        inputs: { type: 'string', default: '100000' },
        seed: { type: 'string', default: '1' },
        part: { type: 'string' },
        minutes: { type: 'string' },
        defects: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    });
    if (values.help) {
      console.log(USAGE);
      return undefined;
    }
    if (values.part !== undefined && !parts.some(({ name }) => name === values.part))
      throw new Error(`--part ${values.part} is none of ${parts.map(({ name }) => name).join(', ')}`);
    return {
      inputs: wholeNumber('--inputs', values.inputs),
      seed: wholeNumber('--seed', values.seed),
      part: values.part,
      defects: values.defects,
      minutes: values.minutes === undefined ? undefined : wholeNumber('--minutes', values.minutes),
    };
  } catch (error) {
    console.error(`fuzz: ${(error as Error).message} (npm run fuzz -- --help lists the options)`);
    process.exit(2);
  }
}

async function showDefects(): Promise<number> {
  return (await findDefects((text) => console.log(text))) === 0 ? 0 : 1;
}

function wholeNumber(option: string, text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new Error(`${option} ${text} is not a whole number`);
  return Number(text);
}

async function fuzz({ inputs, seed, part, minutes }: Options): Promise<number> {
  const releases: (() => unknown)[] = [];
  const t = { teardown: (work: () => unknown) => void releases.unshift(work) };
  const outcomes: Outcome[] = [];
  try {
    const chosen = parts.filter(({ name }) => part === undefined || name === part);
    const shares = chosen.reduce((sum, { share }) => sum + share, 0);
    for (const one of chosen) {
      const own = Math.max(1, Math.round((inputs * one.share) / shares));
      const outcome = await runPart(one, () => Target.start(t), {
        inputs: own,
        seed,
        minutes,
        onProgress: progress(one.name, own),
      });
      outcomes.push(outcome);
      console.log(line(outcome));
      for (const finding of outcome.findings) console.log(`\nFOUND in ${one.name}: ${finding}\n`);
    }
  } finally {
    for (const release of releases) await release();
  }
  const found = outcomes.reduce((sum, { findings }) => sum + findings.length, 0);
  const total = outcomes.reduce((sum, one) => sum + one.inputs, 0);
  console.log(`${total} inputs, seed ${seed}, ${found} found`);
  return found === 0 ? 0 : 1;
}

function progress(name: string, of: number): (inputs: number) => void {
  let next = 0;
  return (inputs) => {
    if (!process.stderr.isTTY || Date.now() < next) return;
    next = Date.now() + 1000;
    process.stderr.write(`\r${name}: ${inputs} of ${of} `);
  };
}

function line({ part, inputs, seconds, findings, before, after }: Outcome): string {
  const mib = (bytes: number) => (bytes / MIB).toFixed(1);
  return [
    `${part.padEnd(10)} ${String(inputs).padStart(8)} inputs ${seconds.toFixed(0).padStart(6)} s ${findings.length} found`,
    `heap ${mib(before.heapBytes)} → ${mib(after.heapBytes)} MiB, resident ${mib(before.residentBytes)} → ${mib(after.residentBytes)} MiB`,
    `files ${before.files} → ${after.files}, sockets ${before.sockets} → ${after.sockets}, timers ${before.timers} → ${after.timers}, entries ${before.entries} → ${after.entries}`,
  ].join('; ');
}

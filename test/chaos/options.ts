/** The command line of `npm run chaos`. */
import { parseArgs } from 'node:util';

/** `instances` kills each instance once; undefined is the usual walk through all faults. */
export type NamedPlan = 'instances';

export interface ChaosOptions {
  plan: NamedPlan | undefined;
  minutes: number;
  seed: number;
  /** Only faults whose name contains one of these. */
  only: string[];
  /** The folder of the evidence, which stays. */
  out: string | undefined;
  defects: boolean;
  /** Only checks the evidence of an earlier run in this folder. */
  check: string | undefined;
}

export class UsageError extends Error {}

export const USAGE = `npm run chaos -- [OPTION]...   starts instances, agents, Postgres and Redis as processes, injects faults into each
                               process and each connection, and records the requests of clients and their answers;
                               then compares this history with the database and with what commands really did

  --plan instances     only kill each of the three instances once, in about a minute; needs no Redis
  --minutes M          inject faults for M minutes (default 10; start and end take about a minute more)
  --seed S             order and targets of the faults (default 1)
  --only TEXT          only faults (or defects) whose name contains TEXT; may be given several times
  --out DIR            write history, database and logs there; default: a temporary folder, kept if a rule is violated
  --check DIR          start nothing: check the evidence that an earlier run wrote to DIR
  --defects            put each deliberate defect into a copy of the product, and check that its rule finds it
  --help               this text

exit code: 0 no rule was violated, 1 a rule was violated, 2 wrong usage`;

/** Undefined when only help is requested. @throws UsageError */
export function parseOptions(args: string[]): ChaosOptions | undefined {
  const values = parsed(args);
  if (values.help) return undefined;
  const { plan } = values;
  if (plan !== undefined && plan !== 'instances')
    throw new UsageError(`--plan ${plan} does not exist; the only plan is instances`);
  if (plan !== undefined && (values.minutes ?? values.only) !== undefined)
    throw new UsageError('--plan does not go with --minutes or --only');
  const minutes = Number(values.minutes ?? '10');
  if (!(minutes > 0 && minutes <= 24 * 60)) throw new UsageError(`--minutes ${values.minutes} is not a time`);
  const seed = Number(values.seed);
  if (!Number.isSafeInteger(seed) || seed < 0) throw new UsageError(`--seed ${values.seed} is not a whole number`);
  return {
    plan,
    minutes,
    seed,
    only: values.only ?? [],
    out: values.out,
    defects: values.defects,
    check: values.check,
  };
}

function parsed(args: string[]) {
  try {
    return parseArgs({
      args,
      options: {
        plan: { type: 'string' },
        minutes: { type: 'string' },
        seed: { type: 'string', default: '1' },
        only: { type: 'string', multiple: true },
        out: { type: 'string' },
        check: { type: 'string' },
        defects: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    }).values;
  } catch (cause) {
    throw new UsageError((cause as Error).message.split('. ')[0], { cause });
  }
}

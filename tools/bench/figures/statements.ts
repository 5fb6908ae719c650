/**
 * The load of the database while nothing happens: it must be the same with ten thousand agents as
 * with a hundred (law 3).
 */
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { countStatements, type StatementCount } from '../statement-log.ts';
import { number } from '../table.ts';

/** Agents report their status each minute, so a shorter window would miss part of the load. */
const FULL = { few: 100, many: 10_000, settleMs: 15_000, windowMs: 60_000 };
const QUICK = { few: 10, many: 100, settleMs: 2_000, windowMs: 5_000 };
/** Two counts of the same load differ by a few statements. */
const SAME = 1.05;

export const statements: Figure = {
  name: 'statements',
  says: 'database statements per second in steady state, with 100 and with 10,000 agents',
  seconds: 170,
  measure,
};

async function measure(context: BenchContext): Promise<readonly Result[]> {
  const { few, many, settleMs, windowMs } = context.isQuick ? QUICK : FULL;
  await using zone = await context.startZone();
  const count = async (agents: number): Promise<StatementCount> => {
    await zone.addFleet({ agents: agents - (await zone.countRunning()), rate: 500 });
    await zone.untilKnown(agents);
    await clock.sleep(settleMs, context.signal);
    return countStatements(context.foundation, zone, windowMs);
  };
  const withFew = await count(few);
  const withMany = await count(many);
  return [
    {
      what: `statements per second, ${number(many)} agents on three instances`,
      value: withMany.perSecond,
      unit: '/s',
      floor: { of: `with ${number(few)} agents`, value: withFew.perSecond },
      limit: { on: 'ratio', atMost: SAME },
      notes: [noteOf(few, withFew), noteOf(many, withMany)],
    },
  ];
}

function noteOf(agents: number, { top }: StatementCount): string {
  return `${number(agents)}: ${top.map(({ text, perSecond }) => `${number(perSecond)}/s ${text}`).join(' | ')}`;
}

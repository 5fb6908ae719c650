/**
 * `npm run bench`: measures the figures on real processes, each with its floor from the same run,
 * and prints a table. Exit codes: 0 all measured (met or missed), 1 something could not be
 * measured, 2 wrong usage, 130 stopped by a signal.
 */

import { peerFigures } from '../peers/figures.ts';
import { installPeers } from '../peers/install.ts';
import { figures } from './figures.ts';
import { NoDatabaseError } from './foundation.ts';
import { type BenchOptions, BenchUsageError, parseBenchOptions, usageOf } from './options.ts';
import { type Report, toJson } from './report.ts';
import { Run } from './run.ts';
import { renderTable } from './table.ts';

process.exitCode = await main();
process.exit();

async function main(): Promise<number> {
  try {
    const options = parseBenchOptions(process.argv.slice(2), figures, peerFigures);
    if (options !== undefined) return await bench(options);
    console.log(usageOf(figures, peerFigures));
    return 0;
  } catch (error) {
    if (!(error instanceof BenchUsageError)) throw error;
    say(`${error.message} (npm run bench -- --help lists the options)`);
    return 2;
  }
}

async function bench(options: BenchOptions): Promise<number> {
  const stopping = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => stopping.abort());
  const run = new Run(options, stopping.signal, say);
  try {
    if (options.isPeers) await installPeers(say);
    const report = await run.measure();
    console.log(options.isJson ? toJson(report) : renderTable(report));
    return exitCodeOf(report);
  } catch (error) {
    if (error instanceof NoDatabaseError) {
      say(error.message);
      return 1;
    }
    if (!stopping.signal.aborted) throw error;
    say('stopped');
    return 130;
  } finally {
    await run.stop();
  }
}

function exitCodeOf({ figures: reports }: Report): number {
  return reports.every(({ error }) => error === undefined) ? 0 : 1;
}

function say(text: string): void {
  process.stderr.write(`bench: ${text}\n`);
}

/**
 * What is left of a supervisor that was killed together with its watchdog: the programs that it
 * started still run. The next start ends them, and so does `npm start -- --stop`.
 */
import path from 'node:path';
import type { Clock } from '../../lib/platform/time/clock.ts';
import { isAlive } from '../setup/processes.mjs';
import { type Ending, endInOrder } from './end-processes.ts';
import { Refusal } from './refusal.ts';
import { processesIn } from './watchdog-client.ts';

/** The file in which a supervisor keeps the list of its processes. */
export const processList = (data: string): string => path.join(data, 'config', 'processes.json');

/** The processes that still run, if no supervisor holds the data directory. */
export const leftoversIn = (data: string): Ending[] => processesIn(processList(data));

export const namesOf = (processes: readonly Ending[]): string => processes.map(({ name }) => name).join(', ');

/**
 * Ends them, and says which; resolves to whether there were any.
 * @throws Refusal if some do not end
 */
export async function endLeftovers(data: string, clock: Clock, say: (text: string) => void): Promise<boolean> {
  const left = leftoversIn(data);
  if (left.length === 0) return false;
  say(`ending what an earlier run left behind: ${namesOf(left)}`);
  await endInOrder(left, clock);
  const remaining = left.filter(isAlive);
  if (remaining.length > 0)
    throw new Refusal(`these do not end: ${remaining.map(({ name, pid }) => `${name} (pid ${pid})`).join(', ')}`);
  return true;
}

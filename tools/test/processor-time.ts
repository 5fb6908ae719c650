/** What a run costs whatever else the machine does: the processor time of its processes. */
import { readFileSync } from 'node:fs';

/** `getconf CLK_TCK` prints this on every Linux. */

const TICKS_PER_S = 100;

/**
 * Seconds of processor time that the ended children of this process used, with their own ended
 * children. Undefined without /proc.
 */
export function secondsOfChildren(stat = readStat()): number | undefined {
  // The name in parentheses may contain anything. The 14th and 15th fields after it are cutime and
  // cstime.
  const fields = stat?.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields === undefined ? undefined : (Number(fields[13]) + Number(fields[14])) / TICKS_PER_S;
}

/** Such as `5 min 12 s`. */
export function durationOf(ms: number): string {
  const wholeS = Math.round(ms / 1000);
  return wholeS < 60 ? `${wholeS} s` : `${Math.floor(wholeS / 60)} min ${wholeS % 60} s`;
}

function readStat(): string | undefined {
  try {
    return readFileSync('/proc/self/stat', 'utf8');
  } catch {
    return undefined;
  }
}

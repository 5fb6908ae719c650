/** The addresses of a host name, by the operating system's resolver. */
import { lookup } from 'node:dns/promises';
import type { Clock } from '../clock.ts';

/**
 * Empty when the system does not know the name, or not in time. The lookup itself cannot be limited
 * and continues.
 */
export async function lookUpHost(
  name: string,
  { clock, withinMs }: { clock: Clock; withinMs: number },
): Promise<string[]> {
  const enough = new AbortController();
  const late = clock.sleep(withinMs, enough.signal).then(() => []);
  const found = await Promise.race([lookup(name, { all: true }).catch(() => []), late]);
  enough.abort();
  return found.map(({ address }) => address);
}

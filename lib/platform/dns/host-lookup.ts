/** The addresses of a host name, by the operating system's resolver. */
import { lookup } from 'node:dns/promises';
import { type Clock, settlesWithin } from '../time/clock.ts';

/**
 * Empty when the system does not know the name, or not in time. The lookup itself cannot be limited
 * and continues.
 */
export async function lookUpHost(
  name: string,
  { clock, withinMs }: { clock: Clock; withinMs: number },
): Promise<string[]> {
  const found = lookup(name, { all: true }).catch(() => []);
  if (!(await settlesWithin(clock, withinMs, found))) return [];
  return (await found).map(({ address }) => address);
}

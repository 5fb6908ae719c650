/** The version of a server's cn-agent, on which Triton's CNAPI makes some requests depend. Pure. */
import type { JsonObject } from '../../protocol/json/bounded-json.ts';

type Age = 'older' | 'new enough' | 'unknown';

/** Compares the cn-agent among `agents` with `least`, such as `2.11.0`. */
export function ageOfCnAgent(agents: readonly JsonObject[], least: string): Age {
  const { version } = agents.find(({ name }) => name === 'cn-agent') ?? {};
  const parts = typeof version === 'string' ? partsOf(version) : undefined;
  if (parts === undefined) return 'unknown';
  const differences = partsOf(least)?.map((part, index) => (parts[index] ?? 0) - part);
  return (differences?.find((difference) => difference !== 0) ?? 0) < 0 ? 'older' : 'new enough';
}

function partsOf(version: string): number[] | undefined {
  const [, ...parts] = /^(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?!\d)/.exec(version) ?? [];
  return parts.length === 0 ? undefined : parts.map(Number);
}

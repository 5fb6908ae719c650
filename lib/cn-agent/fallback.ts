/**
 * Whether an agent that no instance takes speaks the older scheme meanwhile, and how long it waits before it looks for a
 * link again. An address is of the older kind when it answered the upgrade as one that does not know the route. Pure; used
 * by link.ts. docs/design.md section 5, "Old agents".
 */
import { type Endpoint, endpointKey } from './endpoints.ts';

/** How an agent speaks to the control plane: over the link if there is one, over it only, or by the older scheme only. */
export const PROTOCOLS = ['auto', 'link', 'old'] as const;
export type Protocol = (typeof PROTOCOLS)[number];

/** A round in which every known address was tried, and none took the agent. */
export interface VainRound {
  known: readonly Endpoint[];
  /** Keys of those of the older kind. */
  old: readonly string[];
  /** Rounds in vain before this one. */
  failedRounds: number;
}

/** Beside new instances that are only away for a moment an old one is no reason to fall back. */
const PATIENCE_ROUNDS = 3;
const LOOK_AGAIN_MS = 30_000;

/** Of an instance without the link: it does not know the path (404), the verb there (405), or the upgrade (426). */
export const isOldStyle = (status: number | undefined): boolean => status === 404 || status === 405 || status === 426;

export function isAllOld({ known, old }: Pick<VainRound, 'known' | 'old'>): boolean {
  return known.length > 0 && known.every((endpoint) => old.includes(endpointKey(endpoint)));
}

export function wantsOldScheme(round: VainRound): boolean {
  return isAllOld(round) || (round.old.length > 0 && round.failedRounds >= PATIENCE_ROUNDS);
}

/** Half a minute to a minute. */
export const lookAgainMs = (chance: number): number => LOOK_AGAIN_MS * (1 + chance);

/** True when an address is named that was not known. */
export function namesAnother(named: readonly Endpoint[], known: readonly Endpoint[]): boolean {
  const keys = new Set(known.map(endpointKey));
  return named.some((endpoint) => !keys.has(endpointKey(endpoint)));
}

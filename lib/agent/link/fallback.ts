/**
 * Decides whether an agent that no instance accepts uses the legacy protocol meanwhile, and how
 * long it waits before it tries the link again. An address counts as legacy when it answered the
 * upgrade like a server without that route. Pure; used by link-step.ts. See
 * docs/design/legacy-agents.md.
 */
import { type Endpoint, endpointKey } from './endpoints.ts';

/**
 * How an agent talks to the control plane: by link, or by the legacy protocol where there is no
 * link (`auto`); by link only; or by the legacy protocol only (`legacy`).
 */
export const PROTOCOLS = ['auto', 'link', 'legacy'] as const;
export type Protocol = (typeof PROTOCOLS)[number];

/** A round in which every known address was tried and none accepted the agent. */
interface FailedRound {
  known: readonly Endpoint[];
  /** Keys of the legacy addresses. */
  legacyEndpoints: readonly string[];
  /** Failed rounds before this one. */
  failedRounds: number;
}

/**
 * Failed rounds before a legacy address among others causes a fallback: the instances that have the
 * link may be unreachable only for a moment.
 */
const PATIENCE_ROUNDS = 3;
const LOOK_AGAIN_MS = 30_000;

/**
 * The instance has no link: it does not know the path (404), the method there (405) or the upgrade
 * (426).
 */
export const isLegacyCnapi = (status: number | undefined): boolean =>
  status === 404 || status === 405 || status === 426;

export function areAllLegacy({ known, legacyEndpoints }: Pick<FailedRound, 'known' | 'legacyEndpoints'>): boolean {
  return known.length > 0 && known.every((endpoint) => legacyEndpoints.includes(endpointKey(endpoint)));
}

export function shouldFallBack(round: FailedRound): boolean {
  return areAllLegacy(round) || (round.legacyEndpoints.length > 0 && round.failedRounds >= PATIENCE_ROUNDS);
}

/** The pause before the link is tried again: 30 to 60 s. */
export const lookAgainMs = (chance: number): number => LOOK_AGAIN_MS * (1 + chance);

/** True when `named` contains an address that was not known. */
export function namesAnother(named: readonly Endpoint[], known: readonly Endpoint[]): boolean {
  const keys = new Set(known.map(endpointKey));
  return named.some((endpoint) => !keys.has(endpointKey(endpoint)));
}

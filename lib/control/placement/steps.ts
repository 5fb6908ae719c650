/**
 * What a step of the pipeline is, and what all steps know. Pure. The steps are in `filters.ts`
 * and `preferences.ts`; `pipeline.ts` runs them.
 */
import type { Random } from '../../platform/random.ts';
import type { CandidateServer, Ratios } from './candidate.ts';
import type { PlacementRequest } from './request.ts';

export const WEIGHTS = [
  'current_platform',
  'next_reboot',
  'num_owner_zones',
  'uniform_random',
  'unreserved_disk',
  'unreserved_ram',
] as const;
export type WeightName = (typeof WEIGHTS)[number];

export interface StepContext {
  request: PlacementRequest;
  /** What a server promises of each resource, in multiples. */
  ratios: Ratios;
  maxVms: number;
  weights: Readonly<Record<WeightName, number>>;
  /** Where the VMs are that the request names; those of other owners are left out. */
  located: ReadonlyMap<string, { serverUuid: string; rack: string }>;
  random: Random;
}

/** Why servers are dropped, by their uuids. */
export type RejectionReasons = ReadonlyMap<string, string>;

export type PlacementStep =
  | { kind: 'filter'; drops(candidates: readonly CandidateServer[], context: StepContext): RejectionReasons }
  /** Groups of servers, the best one first. The servers of a group have the same score. */
  | {
      kind: 'score';
      weight: WeightName;
      groups(candidates: readonly CandidateServer[], context: StepContext): CandidateServer[][];
    }
  /** Drops nothing: what it computes in the reference is read with each server here. */
  | { kind: 'noop' };

/** A reason may quote the traits of its server. */
const MAX_REASON_CHARS = 500;

/** A filter that decides about each server by itself. */
export const filterEach = (
  reasonAgainst: (candidate: CandidateServer, context: StepContext) => string | undefined,
): PlacementStep => ({
  kind: 'filter',
  drops: (candidates, context) =>
    new Map(
      candidates.flatMap((candidate): [string, string][] => {
        const reason = reasonAgainst(candidate, context);
        return reason === undefined ? [] : [[candidate.uuid, reason.slice(0, MAX_REASON_CHARS)]];
      }),
    ),
});

/** A filter that keeps the preferred servers if there are any, else all. */
export function keepPreferred(
  candidates: readonly CandidateServer[],
  isPreferred: (candidate: CandidateServer) => boolean,
): readonly CandidateServer[] {
  const preferred = candidates.filter(isPreferred);
  return preferred.length > 0 ? preferred : candidates;
}

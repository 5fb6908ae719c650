/**
 * The pipeline: the steps that choose among servers, as data, in the order of the configuration. An
 * entry `a|b` runs `a`, and `b` in its place if `a` leaves no server. Pure.
 */
import type { CandidateServer } from './candidate.ts';
import { filters } from './filters.ts';
import { preferences } from './preferences.ts';
import type { PlacementStep, StepContext } from './steps.ts';

const noop = { kind: 'noop' } as const;
/** All steps, each by its name in the reference. */
export const STEP_CATALOGUE = {
  ...filters,
  ...preferences,
  'calculate-ticketed-vms': noop,
  'calculate-server-unreserved': noop,
  /**
   * The reference has configurable scripts that decide which owner may use which server. This
   * project has none.
   */
  'hard-filter-owners-servers': noop,
  identity: noop,
} as const satisfies Readonly<Record<string, PlacementStep>>;
export type StepName = keyof typeof STEP_CATALOGUE;

export const DEFAULT_PIPELINE = [
  'hard-filter-setup',
  'hard-filter-running',
  'hard-filter-invalid-servers',
  'hard-filter-volumes-from',
  'calculate-ticketed-vms',
  'hard-filter-reserved',
  'hard-filter-headnode',
  'hard-filter-vm-count',
  'hard-filter-capness',
  'hard-filter-vlans',
  'hard-filter-platform-versions',
  'hard-filter-traits',
  'hard-filter-sick-servers',
  'calculate-server-unreserved',
  'hard-filter-overprovision-ratios',
  'hard-filter-min-ram',
  'hard-filter-min-cpu',
  'hard-filter-min-disk',
  'hard-filter-locality-hints',
  'hard-filter-reservoir|identity',
  'hard-filter-large-servers|identity',
  'soft-filter-locality-hints',
  'score-unreserved-ram',
  'score-unreserved-disk',
  'score-num-owner-zones',
  'score-current-platform',
  'score-next-reboot',
  'score-uniform-random',
];

/** Each entry has the steps of which the first one that leaves a server counts. */
export type Pipeline = readonly (readonly StepName[])[];

interface StepResult {
  step: StepName;
  remaining: readonly string[];
  /** Why each dropped server was dropped, or by how much the score of each rose. */
  explanations: ReadonlyMap<string, string>;
  /** How many servers there were before. */
  before: number;
}

export interface PipelineResult {
  /** The remaining servers, the best one first. */
  ranked: readonly CandidateServer[];
  scores: ReadonlyMap<string, number>;
  steps: readonly StepResult[];
}

/** Stops after the step that leaves no server. */
export function runPipeline(
  pipeline: Pipeline,
  candidates: readonly CandidateServer[],
  context: StepContext,
): PipelineResult {
  const results: StepResult[] = [];
  const scores = new Map<string, number>();
  let left = candidates;
  for (const alternatives of pipeline) {
    if (left.length === 0) break;
    const before = left;
    for (const name of alternatives) {
      const { kept, explanations } = runStep(STEP_CATALOGUE[name], before, { context, scores });
      left = kept;
      results.push({ step: name, remaining: kept.map(({ uuid }) => uuid), explanations, before: before.length });
      if (kept.length > 0) break;
    }
  }
  const scoreOf = ({ uuid }: CandidateServer) => scores.get(uuid) ?? 0;
  return { ranked: left.toSorted((candidate, other) => scoreOf(other) - scoreOf(candidate)), scores, steps: results };
}

function runStep(
  step: PlacementStep,
  candidates: readonly CandidateServer[],
  { context, scores }: { context: StepContext; scores: Map<string, number> },
): { kept: readonly CandidateServer[]; explanations: ReadonlyMap<string, string> } {
  switch (step.kind) {
    case 'noop':
      return { kept: candidates, explanations: new Map() };
    case 'filter': {
      const explanations = step.drops(candidates, context);
      return { kept: candidates.filter(({ uuid }) => !explanations.has(uuid)), explanations };
    }
    case 'score': {
      const weight = context.weights[step.weight];
      if (weight === 0) return { kept: candidates, explanations: new Map() };
      const gains = gainsOf(step.groups(candidates, context), weight);
      for (const [uuid, gain] of gains) scores.set(uuid, (scores.get(uuid) ?? 0) + gain);
      return {
        kept: candidates,
        explanations: new Map([...gains].map(([uuid, gain]) => [uuid, `score +${gain.toFixed(3)}`])),
      };
    }
    default:
      return step satisfies never;
  }
}

/**
 * The first group gets the whole weight, the last one nothing; the other way round if it is
 * negative.
 */
function gainsOf(groups: readonly (readonly CandidateServer[])[], weight: number): Map<string, number> {
  const ordered = weight < 0 ? groups.toReversed() : groups;
  const last = Math.max(ordered.length - 1, 1);
  return new Map(
    ordered.flatMap((group, index) =>
      group.map(({ uuid }): [string, number] => [uuid, ((last - index) / last) * Math.abs(weight)]),
    ),
  );
}

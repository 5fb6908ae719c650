/** What the steps of the pipeline did to all servers that an allocation has considered. Pure. */
import type { CandidateServer } from './candidate.ts';
import type { PipelineResult, StepName } from './pipeline.ts';

/** Explanations that are kept of each step. */
const MAX_EXPLANATIONS = 100;

interface FunnelStep {
  step: StepName;
  before: number;
  dropped: number;
  /** For each server, why it was dropped or by how much its score rose. */
  explanations: Map<string, string>;
  /** The first server that it dropped. */
  example: { hostname: string; reason: string } | undefined;
}

export class Funnel {
  readonly #steps = new Map<StepName, FunnelStep>();
  #servers = 0;
  #lost = 0;

  get steps(): readonly FunnelStep[] {
    return [...this.#steps.values()];
  }

  /** Adds what the pipeline did to these servers. */
  add(candidates: readonly CandidateServer[], result: PipelineResult): void {
    this.#servers += candidates.length;
    for (const { step, before, remaining, explanations } of result.steps) {
      const known = this.#steps.get(step) ?? {
        step,
        before: 0,
        dropped: 0,
        explanations: new Map(),
        example: undefined,
      };
      known.before += before;
      known.dropped += before - remaining.length;
      for (const [uuid, reason] of explanations) {
        if (known.explanations.size < MAX_EXPLANATIONS) known.explanations.set(uuid, reason);
      }
      if (remaining.length < before) known.example ??= exampleOf(candidates, explanations);
      this.#steps.set(step, known);
    }
  }

  /** A server had room, and other requests took it before this one. */
  addLost(): void {
    this.#lost += 1;
  }

  /** Whether volumes are the reason that no server was left. */
  get isAboutVolumes(): boolean {
    const dropping = this.steps.filter(({ dropped }) => dropped > 0);
    return dropping.at(-1)?.step === 'hard-filter-volumes-from';
  }

  /** Why no server is left, in one sentence. */
  summary(): string {
    if (this.#servers === 0) return 'there is no server to choose from';
    const dropping = this.steps
      .filter(({ dropped }) => dropped > 0)
      .toSorted((one, other) => other.dropped - one.dropped)
      .map(
        ({ step, dropped, example }) =>
          `${step} dropped ${dropped}${example ? ` (${example.hostname} ${example.reason})` : ''}`,
      );
    const lost = this.#lost > 0 ? [`other requests took the room on ${this.#lost} first`] : [];
    return `none of ${this.#servers} servers is left: ${[...dropping, ...lost].join(', ')}`;
  }
}

function exampleOf(
  candidates: readonly CandidateServer[],
  explanations: ReadonlyMap<string, string>,
): FunnelStep['example'] {
  const [first] = explanations;
  if (first === undefined) return undefined;
  const [uuid, reason] = first;
  const hostname = candidates.find((candidate) => candidate.uuid === uuid)?.hostname;
  return { hostname: hostname === undefined || hostname === '' ? uuid : hostname, reason };
}

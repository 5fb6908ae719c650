/** Order statistics of samples. Pure. */
export interface Summary {
  samples: number;
  median: number;
  p10: number;
  p90: number;
  p99: number;
  max: number;
}

/** @throws RangeError without samples */
export function summarize(samples: readonly number[]): Summary {
  const sorted = [...samples].sort((a, b) => a - b);
  return {
    samples: sorted.length,
    median: quantile(sorted, 0.5),
    p10: quantile(sorted, 0.1),
    p90: quantile(sorted, 0.9),
    p99: quantile(sorted, 0.99),
    max: quantile(sorted, 1),
  };
}

export const median = (samples: readonly number[]): number => summarize(samples).median;

/** Returns the smallest sample that at least `share` of all samples do not exceed. */
function quantile(sorted: readonly number[], share: number): number {
  const found = sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)];
  if (found === undefined) throw new RangeError('there are no samples');
  return found;
}

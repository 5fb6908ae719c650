/**
 * Metrics as values: each part of the instance lists its own, and `metrics.ts` shows them. Names
 * are without the prefix `cnapi_`; names of counters end in `_total`. `docs/metrics.md` says which
 * ones to alert on.
 */

/** A number that another object holds: read at each scrape. */
interface ReadMetric {
  kind: 'gauge' | 'counter';
  name: string;
  help: string;
  read(): number;
}

/** Numbers by the value of one label, which have to be fetched. */
interface LabelledGauge {
  kind: 'labelled gauge';
  name: string;
  help: string;
  label: string;
  /** Scrapes within a short time share this value. */
  fetch(): Promise<Readonly<Record<string, number>>>;
}

/** Histograms that are filled together. */
interface Histograms {
  kind: 'histograms';
  /** The histograms by name. */
  histograms: Readonly<Record<string, { help: string; buckets: readonly number[] }>>;
  /** Returns what was observed since the last call, by the name of the histogram. */
  take(): Promise<Readonly<Record<string, readonly number[]>>>;
}

export type Metric = ReadMetric | LabelledGauge | Histograms;

export const gauge = (name: string, help: string, read: () => number): Metric => ({ kind: 'gauge', name, help, read });

/** A number that only grows while the process lives. */
export const counter = (name: `${string}_total`, help: string, read: () => number): Metric => ({
  kind: 'counter',
  name,
  help,
  read,
});

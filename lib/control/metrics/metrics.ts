/**
 * The metrics of this instance in Prometheus text. Each part adds its own (`metric.ts`); this file
 * adds the prefix `cnapi_` to their names. Series have no labels that identify the instance: the
 * scraper knows its target, and `cnapi_build_info` has the rest.
 *
 * Values are read only when somebody scrapes. A scrape never waits long for values that must be
 * fetched: late ones are left out. Concurrent scrapes share one fetch of a labelled gauge. What a
 * histogram takes goes to one of them, which adds it to the histogram that all of them show.
 */
import prometheus from 'prom-client';
import { type Clock, settlesWithin } from '../../platform/time/clock.ts';
import type { Metric } from './metric.ts';

/** Version and place of this process: the labels of `cnapi_build_info`. */
interface Build {
  version: string;
  node: string;
  datacenter: string;
  cnapiUuid: string;
  host: string;
}

interface MetricsDeps {
  build: Build;
  clock: Clock;
}

const PREFIX = 'cnapi_';
const FETCHED_WITHIN_MS = 1_000;
/** Several scrapers ask for the same figures. */
const FRESH_MS = 5_000;

export class Metrics {
  readonly #registry = new prometheus.Registry();
  readonly #clock: Clock;
  /** Run by each scrape, side by side. */
  readonly #fetches: (() => Promise<void>)[] = [];

  constructor({ build, clock }: MetricsDeps) {
    this.#clock = clock;
    prometheus.collectDefaultMetrics({ register: this.#registry });
    const { cnapiUuid, ...rest } = build;
    const labels = { ...rest, cnapi_uuid: cnapiUuid };
    new prometheus.Gauge({
      ...this.#described('build_info', 'Always 1; the labels name the version and the place of this instance'),
      labelNames: Object.keys(labels),
    }).set(labels, 1);
  }

  /** @throws Error when there is one of that name already, which is a programmer's error */
  add(metrics: readonly Metric[]): void {
    for (const metric of metrics) this.#add(metric);
  }

  /** A histogram that its owner fills. */
  histogram<Label extends string>(
    name: string,
    help: string,
    { buckets, labels = [] }: { buckets: readonly number[]; labels?: readonly Label[] },
  ): prometheus.Histogram<Label> {
    const described = this.#described(name, help);
    return new prometheus.Histogram<Label>({ ...described, buckets: [...buckets], labelNames: [...labels] });
  }

  /** A counter that its owner increments. */
  counter<Label extends string>(name: string, help: string, labels: readonly Label[]): prometheus.Counter<Label> {
    return new prometheus.Counter<Label>({ ...this.#described(name, help), labelNames: [...labels] });
  }

  async read(): Promise<{ contentType: string; content: string }> {
    const fetched = Promise.allSettled(this.#fetches.map((fetch) => fetch()));
    await settlesWithin(this.#clock, FETCHED_WITHIN_MS, fetched);
    return { contentType: this.#registry.contentType, content: await this.#registry.metrics() };
  }

  #add(metric: Metric): void {
    if (metric.kind === 'labelled gauge') this.#addLabelledGauge(metric);
    else if (metric.kind === 'histograms') this.#addHistograms(metric);
    else this.#addRead(metric);
  }

  #addRead({ kind, name, help, read }: Extract<Metric, { kind: 'gauge' | 'counter' }>): void {
    if (kind === 'gauge') {
      new prometheus.Gauge({
        ...this.#described(name, help),
        collect() {
          this.set(read());
        },
      });
      return;
    }
    new prometheus.Counter({
      ...this.#described(name, help),
      collect() {
        this.reset();
        this.inc(read());
      },
    });
  }

  #addLabelledGauge({ name, help, label, fetch }: Extract<Metric, { kind: 'labelled gauge' }>): void {
    const shown = new prometheus.Gauge({ ...this.#described(name, help), labelNames: [label] });
    let fetchedAt = Number.NEGATIVE_INFINITY;
    let fetching: Promise<void> | undefined;
    const refresh = async () => {
      const numbers = await fetch();
      fetchedAt = this.#clock.now();
      shown.reset();
      for (const [value, count] of Object.entries(numbers)) shown.set({ [label]: value }, count);
    };
    this.#fetches.push(async () => {
      if (this.#clock.now() - fetchedAt < FRESH_MS) return;
      // Clear the old values first, in case the fetch times out.
      shown.reset();
      fetching ??= refresh().finally(() => {
        fetching = undefined;
      });
      await fetching;
    });
  }

  #addHistograms({ histograms, take }: Extract<Metric, { kind: 'histograms' }>): void {
    const shown = new Map(
      Object.entries(histograms).map(([name, { help, buckets }]) => [name, this.histogram(name, help, { buckets })]),
    );
    let isTaking = false;
    this.#fetches.push(async () => {
      if (isTaking) return;
      isTaking = true;
      try {
        for (const [name, values] of Object.entries(await take()))
          for (const value of values) shown.get(name)?.observe(value);
      } finally {
        isTaking = false;
      }
    });
  }

  #described(name: string, help: string) {
    return { name: PREFIX + name, help, registers: [this.#registry] };
  }
}

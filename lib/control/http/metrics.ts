/**
 * Metrics in Prometheus text. This file adds the prefix `cnapi_` to every name of ours; counters
 * end in `_total`. Series have no labels that identify the instance: the scraper knows its target,
 * and `cnapi_build_info` has the rest. Owns its own registry. Values are read from their sources
 * only when somebody scrapes. The listener counts requests here.
 */
import prometheus from 'prom-client';
import type { BusStats } from '../../platform/bus/bus.ts';
import type { EventStats } from '../events/events.ts';
import type { TaskStats } from '../tasks/tasks.ts';
import type { WaitlistStats } from '../waitlist/waitlist.ts';
import { type CountedMetric, METRIC_HELP, type MetricValues } from './metric-help.ts';
import type { Scrape } from './scrape.ts';

interface MetricsSources {
  /** Version and place of this process: the labels of `cnapi_build_info`. */
  build: { version: string; node: string; datacenter: string; cnapiUuid: string; host: string };
  /** Servers whose agents are connected to this instance, or posted to it recently. */
  agents(): number;
  tasks(): TaskStats;
  waitlist(): WaitlistStats;
  events(): EventStats;
  bus(): BusStats & { healthy: boolean };
  pool(): { total: number; idle: number; waiting: number };
  /** Values read for each scrape. */
  scrape: Scrape;
  /** Further numbers by name, without the prefix; names of counters end in `_total`. */
  counters?(): MetricValues;
}

interface RequestSample {
  method: string;
  route: string;
  status: number;
  seconds: number;
}

const TASK_TOTALS = {
  tasks_sent_total: 'sent',
  tasks_resent_total: 'resent',
  tasks_swept_total: 'swept',
  tasks_posted_total: 'posted',
  tasks_posts_lost_total: 'postsLost',
  tasks_refused_ends_total: 'refusedEnds',
  tasks_refused_creates_total: 'refusedCreates',
  tasks_dropped_events_total: 'droppedEvents',
} as const satisfies Record<string, keyof TaskStats>;

const PREFIX = 'cnapi_';
const STATEMENT_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const TASK_SECONDS = [0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400];
const LOCK_SECONDS = [0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400];
const REQUEST_SECONDS = [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 600];

export class Metrics {
  readonly #registry = new prometheus.Registry();
  readonly #requests: prometheus.Counter;
  readonly #durations: prometheus.Histogram;
  readonly #statements: prometheus.Histogram;
  readonly #taskWaits: prometheus.Histogram;
  readonly #taskRuns: prometheus.Histogram;
  readonly #lockWaits: prometheus.Histogram;
  readonly #servers: prometheus.Gauge;
  readonly #scrape: Scrape;

  constructor(sources: MetricsSources) {
    prometheus.collectDefaultMetrics({ register: this.#registry });
    const registers = [this.#registry];
    this.#requests = new prometheus.Counter({
      name: `${PREFIX}http_requests_total`,
      help: 'Requests answered',
      labelNames: ['method', 'route', 'code'],
      registers,
    });
    this.#durations = new prometheus.Histogram({
      name: `${PREFIX}http_request_duration_seconds`,
      help: 'Time from the request to the end of its reply, including waits',
      labelNames: ['method', 'route'],
      buckets: REQUEST_SECONDS,
      registers,
    });
    this.#scrape = sources.scrape;
    this.#statements = this.#histogram(
      'database_statement_seconds',
      'Time of statements and transactions of requests and tasks, including the wait for a connection',
      STATEMENT_SECONDS,
    );
    this.#taskWaits = this.#histogram(
      'task_wait_seconds',
      'Time from the creation of a task to its start, for tasks whose ends this instance recorded',
      TASK_SECONDS,
    );
    this.#taskRuns = this.#histogram(
      'task_run_seconds',
      'Time from the start of a task to its end, for tasks whose ends this instance recorded',
      TASK_SECONDS,
    );
    this.#lockWaits = this.#histogram(
      'lock_wait_seconds',
      'Time that a ticket waited in its queue before it became active, for tickets that this instance activated',
      LOCK_SECONDS,
    );
    this.#servers = new prometheus.Gauge({
      name: `${PREFIX}servers`,
      help: 'Servers of the whole zone by status; every instance reports the same numbers',
      labelNames: ['status'],
      registers,
    });
    this.#buildInfo(sources.build);
    this.#gauge(
      'heartbeating_servers',
      'Servers whose agents are connected to this instance, or recently posted a heartbeat to it',
      () => sources.agents(),
    );
    this.#gauge('tasks_waits', 'Callers waiting for a task on this instance', () => sources.tasks().waits);
    this.#gauge(
      'tasks_follows',
      'Callers following the events of a task on this instance',
      () => sources.tasks().follows,
    );
    this.#gauge(
      'tasks_posts_in_flight',
      'Tasks that this instance posted to legacy agents and whose ends it waits for',
      () => sources.tasks().postsInFlight,
    );
    for (const [name, key] of Object.entries(TASK_TOTALS)) {
      this.#counted(name as keyof typeof TASK_TOTALS, () => sources.tasks()[key]);
    }
    this.#gauge('waitlist_waits', 'Callers waiting for a ticket on this instance', () => sources.waitlist().waits);
    this.#total('waitlist_expired_total', 'Tickets that this instance found expired', () => sources.waitlist().expired);
    this.#total(
      'waitlist_defects_total',
      'Queues found with waiting tickets and no active one, and repaired; above 0 is a defect of cnapi',
      () => sources.waitlist().defects,
    );
    this.#total(
      'waitlist_refused_creates_total',
      'Tickets that this instance did not accept because their queue or their server held too many',
      () => sources.waitlist().refusedCreates,
    );
    this.#gauge('events_followers', 'Callers following GET /events on this instance', () => sources.events().followers);
    this.#total('events_numbered_total', 'Events that this instance put into the log', () => sources.events().numbered);
    this.#total(
      'events_gaps_total',
      'Followers that this instance informed that events they had not read were already deleted',
      () => sources.events().gaps,
    );
    this.#gauge(
      'events_lag_seconds',
      'How long the oldest change of the last batch waited before this instance wrote it into the log: under a second while ' +
        'somebody follows, otherwise up to the period of the slow poll',
      () => sources.events().lagMs / 1000,
    );
    this.#gauge('bus_healthy', '1 while the bus carries messages', () => Number(sources.bus().healthy));
    for (const name of ['published', 'received', 'dropped', 'reconnects'] as const) {
      this.#counted(`bus_${name}_total`, () => sources.bus()[name]);
    }
    this.#gauge('bus_topics', 'Topics subscribed', () => sources.bus().topics);
    this.#gauge('database_connections', 'Connections to the database', () => sources.pool().total);
    this.#gauge('database_connections_idle', 'Connections of the pool that are idle', () => sources.pool().idle);
    this.#gauge(
      'database_callers_waiting',
      'Callers that wait for a connection of the pool',
      () => sources.pool().waiting,
    );
    for (const name of Object.keys(sources.counters?.() ?? {}) as CountedMetric[])
      this.#counted(name, () => sources.counters?.()[name] ?? 0);
  }

  countRequest({ method, route, status, seconds }: RequestSample): void {
    this.#requests.inc({ method, route, code: status });
    this.#durations.observe({ method, route }, seconds);
  }

  countStatement(seconds: number): void {
    this.#statements.observe(seconds);
  }

  async read(): Promise<{ contentType: string; content: string }> {
    const scraped = await this.#scrape.read();
    this.#servers.reset();
    for (const [status, count] of Object.entries(scraped.servers ?? {})) this.#servers.set({ status }, count);
    for (const { wait, run } of scraped.taskTimes) {
      if (wait !== null) this.#taskWaits.observe(wait);
      if (run !== null) this.#taskRuns.observe(run);
    }
    for (const seconds of scraped.lockWaits) this.#lockWaits.observe(seconds);
    return { contentType: this.#registry.contentType, content: await this.#registry.metrics() };
  }

  #buildInfo(build: MetricsSources['build']): void {
    const { cnapiUuid, ...rest } = build;
    const labels = { ...rest, cnapi_uuid: cnapiUuid };
    new prometheus.Gauge({
      name: `${PREFIX}build_info`,
      help: 'Always 1; the labels name the version and the place of this instance',
      labelNames: Object.keys(labels),
      registers: [this.#registry],
    }).set(labels, 1);
  }

  #histogram(name: string, help: string, buckets: readonly number[]): prometheus.Histogram {
    return new prometheus.Histogram({ name: PREFIX + name, help, buckets: [...buckets], registers: [this.#registry] });
  }

  #counted(name: CountedMetric, read: () => number): void {
    if (name.endsWith('_total')) this.#total(name, METRIC_HELP[name], read);
    else this.#gauge(name, METRIC_HELP[name], read);
  }

  #gauge(name: string, help: string, read: () => number): void {
    new prometheus.Gauge({
      name: PREFIX + name,
      help,
      registers: [this.#registry],
      collect() {
        this.set(read());
      },
    });
  }

  /** A counter whose value another object keeps. */
  #total(name: string, help: string, read: () => number): void {
    new prometheus.Counter({
      name: PREFIX + name,
      help,
      registers: [this.#registry],
      collect() {
        this.reset();
        this.inc(read());
      },
    });
  }
}

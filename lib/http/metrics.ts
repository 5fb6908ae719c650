/**
 * Metrics in Prometheus text, under the reference's names where the thing exists. Owns a registry of its own; gauges are
 * read from their sources when they are asked for, and only then. The listener counts requests here.
 */
import prometheus from 'prom-client';
import type { BusStats } from '../bus/bus.ts';
import type { EventStats } from '../events/events.ts';
import type { TaskStats } from '../tasks/tasks.ts';
import type { WaitlistStats } from '../waitlist/waitlist.ts';

export interface MetricsSources {
  /** Static labels, as the reference's: datacenter, instance, server, service. */
  labels: Record<string, string>;
  /** Servers whose agents are connected to this instance, or posted to it lately. */
  agents(): number;
  tasks(): TaskStats;
  waitlist(): WaitlistStats;
  events(): EventStats;
  bus(): BusStats & { healthy: boolean };
  pool(): { total: number; idle: number; waiting: number };
  /** Further numbers by name; those that only rise end in `_total`. */
  counters?(): Record<string, number>;
}

export interface RequestSample {
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
  tasks_dropped_events_total: 'droppedEvents',
} as const satisfies Record<string, keyof TaskStats>;

const REQUEST_SECONDS = [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 600];

export class Metrics {
  readonly #registry = new prometheus.Registry();
  readonly #requests: prometheus.Counter;
  readonly #durations: prometheus.Histogram;

  constructor(sources: MetricsSources) {
    this.#registry.setDefaultLabels(sources.labels);
    prometheus.collectDefaultMetrics({ register: this.#registry });
    const registers = [this.#registry];
    this.#requests = new prometheus.Counter({
      name: 'http_requests_completed',
      help: 'Requests answered',
      labelNames: ['method', 'route', 'statusCode'],
      registers,
    });
    this.#durations = new prometheus.Histogram({
      name: 'http_request_duration_seconds',
      help: 'From the request to its whole reply, waits included',
      labelNames: ['method', 'route'],
      buckets: REQUEST_SECONDS,
      registers,
    });
    this.#gauge(
      'heartbeating_servers_count',
      'Servers whose agents are connected to this instance, or posted a heartbeat to it lately',
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
      'Tasks handed to old agents by this instance, whose ends it waits for',
      () => sources.tasks().postsInFlight,
    );
    for (const [name, key] of Object.entries(TASK_TOTALS)) {
      this.#total(name, `${name.replaceAll('_', ' ')}, by this instance`, () => sources.tasks()[key]);
    }
    this.#gauge('waitlist_waits', 'Callers waiting for a ticket on this instance', () => sources.waitlist().waits);
    this.#total('waitlist_expired_total', 'Tickets that this instance found expired', () => sources.waitlist().expired);
    this.#total(
      'waitlist_defects_total',
      'Queues found with waiting tickets and no active one, and mended: never, if all is well',
      () => sources.waitlist().defects,
    );
    this.#gauge('events_followers', 'Callers following GET /events on this instance', () => sources.events().followers);
    this.#total('events_numbered_total', 'Events that this instance put into the log', () => sources.events().numbered);
    this.#total(
      'events_gaps_total',
      'Followers told by this instance that events which they had not seen are not kept any more',
      () => sources.events().gaps,
    );
    this.#gauge(
      'events_lag_seconds',
      'How long the oldest change had waited that this instance put into the log last: under a second while somebody ' +
        'follows, up to the slow poll else',
      () => sources.events().lagMs / 1000,
    );
    this.#gauge('bus_healthy', '1 while the bus carries messages', () => Number(sources.bus().healthy));
    for (const name of ['published', 'received', 'dropped', 'reconnects'] as const) {
      this.#total(`bus_${name}_total`, `Bus: ${name}`, () => sources.bus()[name]);
    }
    this.#gauge('bus_topics', 'Topics subscribed', () => sources.bus().topics);
    this.#gauge('database_connections', 'Connections to the database', () => sources.pool().total);
    this.#gauge('database_connections_idle', 'Those that nobody uses', () => sources.pool().idle);
    this.#gauge('database_callers_waiting', 'Who waits for a connection', () => sources.pool().waiting);
    for (const name of Object.keys(sources.counters?.() ?? {})) {
      const read = () => sources.counters?.()[name] ?? 0;
      if (name.endsWith('_total')) this.#total(name, name.replaceAll('_', ' '), read);
      else this.#gauge(name, name.replaceAll('_', ' '), read);
    }
  }

  countRequest({ method, route, status, seconds }: RequestSample): void {
    this.#requests.inc({ method, route, statusCode: status });
    this.#durations.observe({ method, route }, seconds);
  }

  async read(): Promise<{ contentType: string; content: string }> {
    return { contentType: this.#registry.contentType, content: await this.#registry.metrics() };
  }

  #gauge(name: string, help: string, read: () => number): void {
    new prometheus.Gauge({
      name,
      help,
      registers: [this.#registry],
      collect() {
        this.set(read());
      },
    });
  }

  /** A counter that somebody else keeps. */
  #total(name: string, help: string, read: () => number): void {
    new prometheus.Counter({
      name,
      help,
      registers: [this.#registry],
      collect() {
        this.reset();
        this.inc(read());
      },
    });
  }
}

/** Counts and times of answered requests. */
import type { Metrics } from '../../metrics/metrics.ts';

interface AnsweredRequest {
  method: string;
  route: string;
  status: number;
  seconds: number;
}

const SECONDS = [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 600];

export class RequestMetrics {
  readonly #requests;
  readonly #durations;

  constructor(metrics: Metrics) {
    this.#requests = metrics.counter('http_requests_total', 'Requests answered', ['method', 'route', 'code']);
    this.#durations = metrics.histogram(
      'http_request_duration_seconds',
      'Time from the request to the end of its answer, including waits',
      { buckets: SECONDS, labels: ['method', 'route'] },
    );
  }

  count({ method, route, status, seconds }: AnsweredRequest): void {
    this.#requests.inc({ method, route, code: status });
    this.#durations.observe({ method, route }, seconds);
  }
}

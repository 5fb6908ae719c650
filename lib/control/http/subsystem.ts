/** What the HTTP listener contributes to an instance. */

import { checkCertificate } from '../doctor/files.ts';
import { checkPort } from '../doctor/network.ts';
import { counter, gauge, type Metric } from '../metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import type { CallerLimits } from './limits/caller-limits.ts';
import type { Certificates } from './listener/certificates.ts';
import type { Handlers, HttpListener } from './listener/listener.ts';
import { type ProcessRouteDeps, processRoutes } from './routes/process-routes.ts';

interface HttpParts {
  listener: HttpListener;
  handlers: Pick<Handlers, 'requireServer'>;
  aboutProcess: ProcessRouteDeps;
  /** Knows the routes of all subsystems, once they are open. */
  subsystemHost: Pick<Handlers, 'routes' | 'upgrades'>;
  limits: CallerLimits;
  certificates: Certificates | undefined;
}

export const httpSubsystem: SubsystemDefinition<HttpParts> = {
  checks: { port: checkPort, certificate: checkCertificate },
  open({ listener, handlers, limits, certificates, aboutProcess, subsystemHost }): Subsystem {
    return {
      name: 'listener',
      routes: processRoutes(aboutProcess),
      start: () => listener.start({ ...handlers, routes: subsystemHost.routes, upgrades: subsystemHost.upgrades }),
      unfinished: () => listener.unanswered,
      beginDrain: () => listener.beginDrain(),
      endDrain: () => listener.stopAccepting(),
      disconnect: () => listener.stop(),
      metrics: [
        gauge('http_answer_bytes', 'Memory that answers use, out of answerMemoryMiB', () => limits.answers.held),
        counter(
          'http_answers_refused_total',
          'Requests refused because answers used all the memory they may',
          () => limits.answers.refused,
        ),
        counter(
          'http_caller_quota_refusals_total',
          'Requests refused because their caller had too many streams or waits open',
          () => limits.quotas.refused,
        ),
        gauge(
          'http_body_bytes',
          'Memory that request bodies use while they are received',
          () => limits.bodyMemory.held,
        ),
        counter(
          'http_body_memory_refusals_total',
          'Requests refused because bodies that are being received used all the memory they may',
          () => limits.bodyMemory.refused,
        ),
        counter(
          'http_body_cost_refusals_total',
          'Requests refused because the bodies of their caller cost too much to read',
          () => limits.bodies.refused,
        ),
        counter(
          'http_slow_readers_cut_total',
          'Answers cut off because their caller did not read them',
          () => limits.slowReaders,
        ),
        counter(
          'http_requests_unlogged_total',
          'Requests without a log line, because their address had too many',
          () => limits.requestLog.unlogged,
        ),
        counter(
          'http_connections_cut_total',
          'Connections closed without an answer because too many were open',
          () => listener.cutConnections,
        ),
        ...(certificates === undefined ? [] : tlsMetrics(certificates, listener)),
      ],
    };
  },
};

function tlsMetrics(certificates: Certificates, listener: HttpListener): Metric[] {
  return [
    gauge(
      'tls_certificate_expires_seconds',
      'Seconds until the certificate expires; below 0 afterwards',
      () => certificates.expiresInSeconds,
    ),
    counter('tls_handshakes_failed_total', 'TLS handshakes that failed', () => listener.failedHandshakes),
    counter(
      'tls_handshakes_limited_total',
      'Connections closed before their handshake, because of handshakesPerSecond',
      () => listener.limitedHandshakes,
    ),
  ];
}

/** What legacy agents contribute to an instance: agents that post to it instead of connecting. */

import type { Queryable } from '../../platform/postgres/database.ts';
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import { counter, gauge } from '../metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import type { AgentSources } from './agent-sources.ts';
import type { HeartbeatMonitor } from './heartbeat-monitor.ts';
import { deleteOrphanedHeartbeats } from './heartbeat-store.ts';
import type { LegacyAgentApi } from './legacy-agent-api.ts';
import { type LegacyAgentRouteDeps, legacyAgentRoutes } from './routes/legacy-agent-routes.ts';
import { deleteOldSources } from './source-store.ts';

/** After this time without a post from an address, no agent is called there. */
const KEEP_SOURCES_DAYS = 7;
const DELETE_BATCH = 5_000;

interface LegacyParts {
  heartbeatMonitor: HeartbeatMonitor;
  legacyAgentApi: LegacyAgentApi;
  agentSources: AgentSources;
  /** Has one session for each agent connected to this instance. */
  roster: { sessions: { readonly size: number } };
  servers: LegacyAgentRouteDeps['servers'];
  newServers: LegacyAgentRouteDeps['newServers'];
  database: Queryable;
}

export const legacySubsystem: SubsystemDefinition<LegacyParts> = {
  migrations: readMigrations('legacy', import.meta.dirname),
  open({
    heartbeatMonitor: monitor,
    legacyAgentApi: api,
    agentSources,
    roster,
    servers,
    newServers,
    database,
  }): Subsystem {
    const { stats } = monitor;
    return {
      name: 'legacy agents',
      routes: legacyAgentRoutes({ servers, heartbeats: monitor, agentSources, newServers }),
      start: () => monitor.start(),
      stop: () => Promise.all([monitor.stop(), agentSources.stop()]),
      metrics: [
        gauge(
          'heartbeating_servers',
          'Servers whose agents are connected to this instance, or recently posted a heartbeat to it',
          () => roster.sessions.size + monitor.heartbeating,
        ),
        // The names of Triton's CNAPI, where it counts the same.
        counter(
          'reconciler_new_heartbeaters_total',
          'Servers that began to post heartbeats, or began again',
          () => stats.returned,
        ),
        counter('reconciler_stale_heartbeaters_total', 'Servers that stopped posting heartbeats', () => stats.silent),
        counter(
          'reconciler_usurped_heartbeaters_total',
          'Servers whose heartbeats moved to another instance',
          () => stats.heardElsewhere,
        ),
        counter('reconciler_status_put_total', 'Records of heartbeats that were written', () => stats.recorded),
        counter(
          'reconciler_status_put_failures_total',
          'Records of heartbeats that could not be written',
          () => stats.failedWrites,
        ),
        counter(
          'legacy_heartbeats_dropped_total',
          'Heartbeats of unknown servers, beyond 1,000 at a time',
          () => stats.dropped,
        ),
        counter('legacy_agents_calls_total', 'Posts to legacy agents', () => api.stats().calls),
        counter('legacy_agents_calls_failed_total', 'Posts to legacy agents that failed', () => api.stats().failed),
        counter(
          'legacy_agents_answers_unread_total',
          'Answers of legacy agents that were too long or too slow to be read',
          () => api.stats().unread,
        ),
        counter(
          'legacy_agents_requests_refused_total',
          'Requests to legacy agents that were not sent because too many were in progress',
          () => api.stats().refused,
        ),
      ],
      chores: [
        { name: 'heartbeats of removed servers', batch: () => deleteOrphanedHeartbeats(database, DELETE_BATCH) },
        {
          name: 'addresses of legacy agents',
          batch: () => deleteOldSources(database, KEEP_SOURCES_DAYS, DELETE_BATCH),
        },
      ],
    };
  },
};

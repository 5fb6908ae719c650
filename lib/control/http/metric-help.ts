/**
 * The help texts of the metrics whose values other objects count, without the prefix `cnapi_`. A
 * value without a text stops the start. `docs/metrics.md` says more, and which ones to alert on.
 */
export const METRIC_HELP = {
  access_connections_limited_total: 'Connections beyond connectionsPerSource',
  access_links_refused_total: 'Agents refused because of their token',
  access_new_servers_refused_total: 'New servers refused because their caller had created more than newServersPerHour',
  access_requests_limited_total: 'Requests answered with 429',
  access_sign_ins_failed_total: 'Requests with an invalid token',
  audit_dropped_total: 'Outcomes of requests that could not be written to the audit',
  audit_refusals_unkept_total:
    'Refused requests without a record of their own, because their caller was refused too often',
  bus_dropped_total: 'Messages that could not be sent or read',
  bus_published_total: 'Messages sent',
  bus_received_total: 'Messages received',
  bus_reconnects_total: 'Connections to the bus that were opened again',
  database_healthy: "1 while the database answers this instance's beats",
  database_round_trip_seconds: 'How far away the database is: the shortest answer to a beat in the last minutes',
  database_writable: '0 after a statement found the disk full or the database read-only, until a write succeeds',
  http_answer_bytes: 'Memory that answers use, out of answerMemoryMiB',
  http_answers_refused_total: 'Requests refused because answers used all the memory they may',
  http_caller_quota_refusals_total: 'Requests refused because their caller had too many streams or waits open',
  http_connections_cut_total: 'Connections closed without an answer because too many were open',
  http_requests_unlogged_total: 'Requests without a log line, because their address had too many',
  http_slow_readers_cut_total: 'Answers cut off because their caller did not read them',
  instance_draining: '1 while the instance drains',
  link_admission_rate: 'Agents that may be admitted per second at present; 0 while the instance is late',
  link_arrivals_admitted_total: 'Agents that were admitted',
  link_arrivals_under_way: 'Agents that were admitted and have not sent their inventory yet',
  link_frames_refused_total: 'Frames of agents that were refused because they exceed a limit of the protocol',
  link_reads_paused_total: "Pauses in reading from an agent's connection, because the agent had exceeded its rate",
  link_returns_refused_total: 'Agents refused because they reconnect too often',
  link_upgrades_refused_total: 'Requests of agents for a connection that were answered with a time to return',
  legacy_agents_calls_failed_total: 'Posts to legacy agents that failed',
  legacy_agents_calls_total: 'Posts to legacy agents',
  legacy_agents_replies_unread_total: 'Answers of legacy agents that were too long or too slow to be read',
  legacy_agents_requests_refused_total:
    'Requests to legacy agents that were not sent because too many were in progress',
  legacy_heartbeats_dropped_total: 'Heartbeats of unknown servers, beyond 1,000 at a time',
  reconciler_new_heartbeaters_total: 'Servers that began to post heartbeats, or began again',
  reconciler_stale_heartbeaters_total: 'Servers that stopped posting heartbeats',
  reconciler_status_put_failures_total: 'Records of heartbeats that could not be written',
  reconciler_status_put_total: 'Records of heartbeats that were written',
  reconciler_usurped_heartbeaters_total: 'Servers whose heartbeats moved to another instance',
  roster_agents_shed_total: 'Agents that were asked to move to an instance with fewer agents',
  roster_incarnation_alternations_total: 'Times that two agent processes took turns under one server uuid',
  roster_ownerless_rows: 'Servers whose instance died and whose agents have not connected to another one yet',
  roster_losses_queued: 'Changes of a server to unknown that are not written yet',
  servers_reports_dropped_total: "Agents' reports dropped because 64 MiB of reports waited for the database",
  tasks_dropped_events_total:
    'Pieces of progress and output dropped because they arrived faster than they could be written',
  tasks_posted_total: 'Tasks posted to legacy agents',
  tasks_posts_lost_total: 'Posted tasks whose instance died before their end was recorded',
  tasks_refused_creates_total: 'Tasks refused because the queue of their server was full',
  tasks_refused_ends_total:
    'Ends of tasks not taken because 64 MiB of ends waited for the database; agents repeat them',
  tasks_resent_total: 'Tasks sent again because the agent had not confirmed them',
  tasks_sent_total: 'Tasks sent to agents',
  tasks_swept_total: 'Tasks that the instance ended: never accepted by an agent, or long past their timeout',
  tls_certificate_expires_seconds: 'Seconds until the certificate expires; below 0 afterwards',
  tls_handshakes_failed_total: 'TLS handshakes that failed',
  zone_at_capacity: '1 while every instance that is not draining refuses agents',
} as const satisfies Record<string, string>;

export type CountedMetric = keyof typeof METRIC_HELP;
export type MetricValues = Readonly<Partial<Record<CountedMetric, number>>>;

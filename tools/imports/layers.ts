/**
 * Which part of lib may import which. A part is a folder or a file of lib; the longest matching
 * entry counts. Imports run one way: platform → protocol → nouns → edges (link, http) → app →
 * server. A new folder needs a line here, otherwise the check fails. The check also fails for an
 * allowed import that no file uses.
 */

/** For every line that includes it; these imports may be unused. The files of lib/platform itself. */
export const base: readonly string[] = ['platform'];
const database: readonly string[] = [...base, 'platform/postgres'];

/** The routes of the nouns, by where they are. */
const routes: readonly string[] = [
  'control/waitlist/routes',
  'control/tasks/routes',
  'control/servers/routes',
  'control/legacy/legacy-agent-routes.ts',
  'control/roster/instance-routes.ts',
  'control/access/token-routes.ts',
  'control/audit/audit-routes.ts',
  'control/events/event-routes.ts',
];

export const mayImport: Readonly<Record<string, readonly string[]>> = {
  // Knows nothing of servers.
  platform: [],
  'platform/postgres': base,
  'platform/moray': database,
  'platform/bus': database,
  'platform/waits': [...database, 'platform/bus'],
  'platform/dns': base,
  // What passes between programs.
  protocol: base,
  // The REST API: how each route is called, and what it answers.
  'protocol/api': base,

  // The control plane. Its configuration checks URLs and networks with the code that reads them.
  'control/config.ts': [...database, 'platform/bus', 'control/access'],
  'control/access': database,
  'control/audit': [...database, 'control/access'],
  // These two may become a separate service one day, so they import nothing of servers, sessions or
  // HTTP.
  'control/tasks': [...database, 'platform/bus', 'platform/waits', 'protocol', 'control/config.ts'],
  'control/waitlist': [...database, 'platform/bus', 'platform/waits', 'protocol', 'control/config.ts'],
  'control/events': [...database, 'platform/bus', 'platform/waits', 'control/config.ts'],
  'control/roster': [...database, 'platform/moray', 'platform/bus', 'protocol'],
  'control/servers': [...database, 'platform/moray', 'protocol'],
  'control/legacy': [
    ...database,
    'platform/moray',
    'platform/bus',
    'protocol',
    'control/access',
    'control/tasks',
    'control/roster',
    'control/servers',
  ],
  'control/link': [...base, 'protocol', 'control/tasks', 'control/roster'],
  'control/http': [
    ...base,
    'platform/bus',
    'protocol',
    'protocol/api',
    'control/access',
    'control/audit',
    'control/tasks',
    'control/waitlist',
    'control/events',
    'control/roster',
    'control/servers',
    'control/legacy',
    ...routes,
  ],
  'control/waitlist/routes': [...base, 'protocol/api', 'control/waitlist', 'control/http', 'control/servers/routes'],
  'control/tasks/routes': [
    ...base,
    'protocol',
    'protocol/api',
    'control/access',
    'control/tasks',
    'control/http',
    'control/servers/routes',
    'control/audit/audit-routes.ts',
  ],
  'control/servers/routes': [...base, 'protocol/api', 'control/servers', 'control/http'],
  'control/legacy/legacy-agent-routes.ts': [
    ...base,
    'protocol/api',
    'control/servers',
    'control/http',
    'control/servers/routes',
  ],
  'control/roster/instance-routes.ts': [...base, 'protocol/api', 'control/roster', 'control/http'],
  'control/access/token-routes.ts': [...base, 'protocol/api', 'control/access', 'control/http'],
  'control/audit/audit-routes.ts': [...base, 'protocol/api', 'control/http'],
  'control/events/event-routes.ts': [...base, 'protocol/api', 'control/events', 'control/http'],
  'control/housekeeping.ts': database,
  'control/descriptors.ts': base,
  'control/promotion.ts': [...database, 'protocol', 'control/tasks', 'control/roster'],
  'control/core.ts': [
    ...database,
    'platform/moray',
    'platform/bus',
    'control/config.ts',
    'control/access',
    'control/audit',
    'control/tasks',
    'control/waitlist',
    'control/events',
    'control/roster',
    'control/servers',
    'control/legacy',
    'control/link',
    'control/housekeeping.ts',
  ],
  'control/app.ts': [
    ...database,
    'platform/bus',
    'control/config.ts',
    'control/access',
    'control/audit',
    'control/roster',
    'control/legacy',
    'control/http',
    'control/core.ts',
    'control/descriptors.ts',
    'control/housekeeping.ts',
    'control/promotion.ts',
  ],
  'server.ts': [...base, 'control/config.ts', 'control/app.ts'],
  'control/direct-token.ts': [...database, 'control/config.ts', 'control/access', 'control/audit', 'control/core.ts'],
  'control/doctor': [
    ...database,
    'platform/bus',
    'platform/dns',
    'control/config.ts',
    'control/descriptors.ts',
    'control/access',
    'control/roster',
    'control/http',
    'control/core.ts',
  ],

  // Programs that run elsewhere share with the control plane only the platform and the protocol.
  agent: [...base, 'platform/dns', 'protocol'],
  'agent/simulated': [...base, 'agent'],
  client: [...base, 'platform/dns'],
  cli: [...base, 'platform/dns', 'protocol', 'client', 'control/direct-token.ts', 'control/doctor'],
};

/**
 * Files of nouns that must be pure (types and decisions): they may import neither stores nor
 * anything that does I/O.
 */
export const pureFiles: readonly string[] = [
  'lib/control/access/token.ts',
  'lib/control/access/networks.ts',
  'lib/control/access/source-limits.ts',
  'lib/control/roster/roster.ts',
  'lib/control/roster/session.ts',
  'lib/control/legacy/sightings.ts',
  'lib/control/servers/server.ts',
  'lib/control/events/event.ts',
  'lib/control/tasks/task.ts',
  'lib/control/waitlist/ticket.ts',
];

/** Node modules that a pure file may import: computations, no I/O. */
export const pureBuiltins: readonly string[] = ['node:crypto', 'node:util', 'node:net', 'node:assert', 'node:buffer'];

export const limits = { server: 60, file: 400 } as const;

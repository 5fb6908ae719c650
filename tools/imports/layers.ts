/**
 * Which folder of lib may import which. Imports run one way: ports → wire → nouns → edges (agents,
 * http) → app → server. A new folder needs a line here, otherwise the check fails. The check also
 * fails for an allowed import that no file uses.
 */

/** For every line that includes it; these imports may be unused. */
export const base: readonly string[] = ['ports', 'errors.ts', 'log.ts'];

export const mayImport: Readonly<Record<string, readonly string[]>> = {
  ports: [],
  'errors.ts': [],
  'log.ts': [],
  'version.ts': [],
  // It checks URLs and networks with the code that reads them.
  'config.ts': [...base, 'access', 'moray', 'bus'],
  wire: base,
  moray: base,
  dns: base,
  access: [...base, 'moray'],
  audit: [...base, 'moray', 'access'],
  bus: [...base, 'moray'],
  waits: [...base, 'moray', 'bus'],
  // These two may become a separate service one day, so they import nothing of servers, sessions or
  // HTTP.
  tasks: [...base, 'config.ts', 'wire', 'moray', 'bus', 'waits'],
  waitlist: [...base, 'config.ts', 'wire', 'moray', 'bus', 'waits'],
  events: [...base, 'config.ts', 'moray', 'bus', 'waits'],
  roster: [...base, 'wire', 'moray', 'bus'],
  servers: [...base, 'wire', 'moray'],
  'old-agents': [...base, 'wire', 'moray', 'access', 'tasks', 'roster', 'servers'],
  agents: [...base, 'wire', 'tasks', 'roster'],
  http: [...base, 'wire', 'bus', 'access', 'audit', 'tasks', 'waitlist', 'events', 'roster', 'servers', 'old-agents'],
  'housekeeping.ts': [...base, 'moray'],
  'descriptors.ts': base,
  'promotion.ts': [...base, 'wire', 'moray', 'tasks', 'roster'],
  'core.ts': [
    ...base,
    'config.ts',
    'version.ts',
    'moray',
    'bus',
    'access',
    'audit',
    'tasks',
    'waitlist',
    'events',
    'roster',
    'servers',
    'old-agents',
    'agents',
    'housekeeping.ts',
  ],
  'app.ts': [
    ...base,
    'config.ts',
    'version.ts',
    'moray',
    'bus',
    'access',
    'audit',
    'roster',
    'old-agents',
    'http',
    'core.ts',
    'descriptors.ts',
    'housekeeping.ts',
    'promotion.ts',
  ],
  'server.ts': [...base, 'config.ts', 'app.ts'],
  'direct-token.ts': [...base, 'config.ts', 'moray', 'access', 'audit', 'core.ts'],
  doctor: [...base, 'config.ts', 'descriptors.ts', 'moray', 'bus', 'dns', 'access', 'roster', 'http', 'core.ts'],
  // Programs that run on servers share with the control plane only the wire protocol.
  'cn-agent': [...base, 'wire', 'dns'],
  fleet: [...base, 'cn-agent'],
  client: [...base, 'dns'],
  cli: [...base, 'wire', 'dns', 'client', 'version.ts', 'direct-token.ts', 'doctor'],
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

/**
 * Which folder of lib may import which. Imports run one way: ports → wire → nouns → edges (agents, http) → app → server.
 * A new folder gets its line here, or the check refuses it; so does the check with what a line allows and no import uses.
 */

/** For everybody who has a line that says so; whether they are used is not looked at. */
export const base: readonly string[] = ['ports', 'errors.ts', 'log.ts'];

export const mayImport: Readonly<Record<string, readonly string[]>> = {
  ports: [],
  'errors.ts': [],
  'log.ts': [],
  'version.ts': [],
  // It checks URLs and networks with those who read them.
  'config.ts': [...base, 'access', 'moray', 'bus'],
  wire: base,
  moray: base,
  dns: base,
  access: [...base, 'moray'],
  audit: [...base, 'moray', 'access'],
  bus: [...base, 'moray'],
  waits: [...base, 'bus'],
  // These two could become a service of their own one day: they know nothing of servers, sessions or HTTP.
  tasks: [...base, 'config.ts', 'wire', 'moray', 'bus', 'waits'],
  waitlist: [...base, 'config.ts', 'moray', 'bus', 'waits'],
  events: [...base, 'config.ts', 'moray', 'bus', 'waits'],
  roster: [...base, 'wire', 'moray', 'bus'],
  servers: [...base, 'wire', 'moray'],
  'old-agents': [...base, 'moray', 'access', 'tasks', 'roster', 'servers'],
  agents: [...base, 'wire', 'tasks', 'roster'],
  http: [...base, 'wire', 'bus', 'access', 'audit', 'tasks', 'waitlist', 'events', 'roster', 'servers', 'old-agents'],
  'housekeeping.ts': [...base, 'moray'],
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
    'housekeeping.ts',
    'promotion.ts',
  ],
  'server.ts': [...base, 'config.ts', 'app.ts'],
  'direct-token.ts': [...base, 'config.ts', 'moray', 'access', 'audit', 'core.ts'],
  doctor: [...base, 'config.ts', 'moray', 'bus', 'dns', 'access', 'roster', 'http', 'core.ts'],
  // What runs on servers shares with the control plane only what goes over the wire.
  'cn-agent': [...base, 'wire', 'dns'],
  fleet: [...base, 'cn-agent'],
  client: [...base, 'dns'],
  cli: [...base, 'wire', 'dns', 'client', 'version.ts', 'direct-token.ts', 'doctor'],
};

/** Nouns whose pure file (types and decisions) may import neither stores nor anything that does I/O. */
export const pureFiles: readonly string[] = [
  'lib/access/token.ts',
  'lib/access/networks.ts',
  'lib/access/source-limits.ts',
  'lib/roster/roster.ts',
  'lib/roster/session.ts',
  'lib/old-agents/sightings.ts',
  'lib/servers/server.ts',
  'lib/events/event.ts',
  'lib/tasks/task.ts',
  'lib/waitlist/ticket.ts',
];

/** What a pure file may import of Node: computations, no I/O. */
export const pureBuiltins: readonly string[] = ['node:crypto', 'node:util', 'node:net', 'node:assert', 'node:buffer'];

export const limits = { server: 60, file: 400 } as const;

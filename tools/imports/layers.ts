/**
 * Which folder of lib may import which. Imports run one way: ports → wire → nouns → edges (agents, http) → app → server.
 * A new folder gets its line here, or the check refuses it.
 */
const base = ['ports', 'errors.ts', 'log.ts'];
const stores = [...base, 'config.ts', 'wire', 'moray', 'bus'];
const whole = [
  ...stores,
  'version.ts',
  'access',
  'audit',
  'dns',
  'waits',
  'tasks',
  'waitlist',
  'events',
  'roster',
  'servers',
  'old-agents',
  'agents',
  'http',
];

export const mayImport: Readonly<Record<string, readonly string[]>> = {
  ports: [],
  'errors.ts': [],
  'log.ts': [],
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
  tasks: [...stores, 'waits'],
  waitlist: [...stores, 'waits'],
  events: [...stores, 'waits'],
  roster: stores,
  servers: [...stores, 'roster'],
  'old-agents': [...stores, 'access', 'tasks', 'waitlist', 'roster', 'servers'],
  agents: [...stores, 'tasks', 'waitlist', 'roster', 'servers'],
  http: [...stores, 'access', 'audit', 'tasks', 'waitlist', 'roster', 'servers', 'old-agents', 'agents', 'events'],
  'version.ts': [],
  'housekeeping.ts': whole,
  'promotion.ts': whole,
  'core.ts': [...whole.filter((folder) => folder !== 'http'), 'housekeeping.ts'],
  'app.ts': [...whole, 'core.ts', 'housekeeping.ts', 'promotion.ts'],
  'direct-token.ts': [...whole, 'core.ts'],
  doctor: [...whole, 'core.ts'],
  // What runs on servers shares with the control plane only what goes over the wire.
  'cn-agent': [...base, 'wire', 'dns'],
  fleet: [...base, 'wire', 'dns', 'cn-agent'],
  client: [...base, 'wire', 'dns'],
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

/**
 * Which part of lib may import which. A part is a folder or a file of lib; the longest matching
 * entry counts. Imports run one way: platform → protocol → nouns → edges (link, http) → app →
 * server. A new folder needs a line here, otherwise the check fails. The check also fails for an
 * allowed import that no file uses.
 *
 * `*` stands for one name: a line with it is for each folder of that form, and may be unused. In
 * what such a line allows, `*` is the same name. A line may also allow the files of a form.
 */
import { agentLayers } from './agent-layers.ts';
import { dutyLayers } from './duty-layers.ts';
import { serverLayers } from './server-layers.ts';

/**
 * Imports that every part may use, and need not: lib/platform itself, its time, network and limits,
 * and JSON.
 */
export const base: readonly string[] = [
  'platform',
  'platform/time',
  'platform/network',
  'platform/limiting',
  'protocol/json',
];
const database: readonly string[] = [...base, 'platform/postgres'];
/** For what posts tasks to servers without a session. */
const tasksOfServers: readonly string[] = ['control/tasks', 'control/roster', 'control/servers'];
const subsystem: readonly string[] = ['control/metrics', 'control/subsystem.ts'];

/** What routes import: their contracts and the transport. */
const rest: readonly string[] = [...base, 'protocol/api', 'control/http'];

export const mayImport: Readonly<Record<string, readonly string[]>> = {
  // Knows nothing of servers.
  platform: [],
  // The clock, what runs by it, and how busy the event loop is.
  'platform/time': ['platform'],
  // Networks and addresses, sockets, bodies of requests.
  'platform/network': [],
  // What bounds work: semaphores, rates, memory, counts by key.
  'platform/limiting': ['platform', 'platform/time'],
  'platform/postgres': base,
  'platform/moray': database,
  'platform/bus': database,
  'platform/waits': [...database, 'platform/bus'],
  'platform/dns': base,
  'platform/http-client': base,
  'platform/amqp': base,
  // What passes between programs.
  'protocol/json': ['platform'],
  protocol: base,
  // The frames of the agent link, and what both ends count of them.
  'protocol/link': [...base, 'protocol'],
  // Bytes in both directions between a caller and an agent.
  'protocol/streams': [...base, 'protocol', 'protocol/link'],
  // The REST API: how each route is called, and what it answers.
  'protocol/api': [...base, 'protocol', 'protocol/streams'],

  'control/run-topic.ts': [],
  // Records of the audit log as parts of the statements of all nouns.
  'control/audit-part.ts': ['platform/postgres'],
  'control/request-errors.ts': base,
  // What every noun contributes to an instance, as values.
  'control/metrics': base,
  'control/subsystem.ts': [
    ...database,
    'control/metrics',
    'control/http',
    'control/doctor',
    'control/duty',
    'control/roster',
    'control/link',
  ],

  // The control plane. Its configuration checks URLs and networks with the code that reads them.
  'control/config.ts': [...database, 'platform/bus', 'control/*/settings.ts', 'control/http/*/settings.ts'],
  'control/access': [...database, 'protocol/api'],
  'control/audit': [...database, 'protocol/api', 'control/audit-part.ts'],
  // These two may become a separate service one day, so their TypeScript imports nothing of
  // servers, sessions or HTTP.
  'control/tasks': [
    ...database,
    'platform/bus',
    'platform/waits',
    'protocol',
    'protocol/link',
    'protocol/api',
    'control/config.ts',
    'control/run-topic.ts',
  ],
  'control/waitlist': [...database, 'platform/bus', 'platform/waits', 'protocol', 'protocol/api', 'control/config.ts'],
  // Long-running work; knows nothing of what the work is about.
  'control/duty': [...database, 'platform/bus', 'platform/waits'],
  'control/events': [...database, 'platform/bus', 'platform/waits', 'control/config.ts', 'control/request-errors.ts'],
  'control/roster': [...database, 'platform/bus', 'protocol', 'protocol/link', 'protocol/api', 'control/run-topic.ts'],
  ...serverLayers({ database, rest, subsystem }),
  'control/legacy': [...database, 'platform/bus', 'platform/http-client', 'protocol', ...tasksOfServers],
  // Servers without an agent, whose Ur speaks AMQP. Their tasks are posted like those of legacy
  // agents.
  'control/ur': [...database, 'platform/amqp', 'protocol', 'protocol/api', ...tasksOfServers, 'control/legacy'],
  ...dutyLayers({ database, subsystem, rest }),
  'control/images/routes': [...rest, 'control/tasks', 'control/tasks/requests'],
  'control/packages/routes': [
    ...rest,
    'control/request-errors.ts',
    'control/servers',
    'control/tasks',
    'control/tasks/requests',
  ],
  'control/zfs': [...base, 'control/tasks/requests'],
  'control/zfs/routes': [...rest, 'protocol', 'control/tasks', 'control/tasks/requests', 'control/zfs'],
  // Changes of VMs are tasks.
  'control/vms': [...base, 'platform/moray', 'protocol', 'protocol/api', 'control/tasks', 'control/tasks/requests'],
  'control/vms/routes': [
    ...rest,
    'protocol',
    'control/access',
    'control/legacy',
    'control/servers',
    'control/tasks',
    'control/tasks/requests',
    'control/vms',
    'control/vms/docker',
  ],
  // For Docker's clients: tasks whose streams end at a TCP port of this instance.
  'control/vms/docker': [
    ...base,
    'protocol',
    'protocol/link',
    'protocol/streams',
    'control/access',
    'control/http',
    'control/request-errors.ts',
    'control/streams',
    'control/tasks',
    'control/tasks/requests',
    'control/vms',
  ],
  'control/vms/subsystem.ts': [
    ...database,
    'control/roster',
    'control/subsystem.ts',
    'platform/moray',
    'control/vms',
    'control/vms/routes',
  ],
  // On which server a VM is made. The configuration reads its settings; the claims are rows.
  'control/placement': [...database, 'protocol', 'protocol/api'],
  'control/placement/routes': [...rest, 'control/access', 'control/servers', 'control/placement'],
  'control/placement/subsystem.ts': [
    ...database,
    ...subsystem,
    'control/placement',
    'control/placement/routes',
    'control/servers',
  ],
  'control/link': [...base, 'protocol', 'protocol/link', 'control/tasks', 'control/roster'],
  // The instance's part of streams: it passes bytes on, and knows nothing of what they are.
  'control/streams': [...base, 'control/request-errors.ts', 'protocol/link', 'protocol/streams'],
  'control/http': [
    ...base,
    'control/metrics',
    'protocol',
    'protocol/link',
    'protocol/api',
    'control/access',
    'control/audit',
    'control/audit-part.ts',
    'control/request-errors.ts',
  ],
  // The routes of each noun are in its folder `routes`. Those that use other nouns have a line.
  'control/*/routes': [...rest, 'control/request-errors.ts', 'control/*'],
  // Tasks that requests create, and those that they wait for.
  'control/tasks/requests': [...base, 'protocol', 'protocol/api', 'control/http', 'control/access', 'control/tasks'],
  'control/tasks/routes': [
    ...rest,
    'control/request-errors.ts',
    'protocol',
    'protocol/streams',
    'control/access',
    'control/tasks',
    'control/tasks/requests',
    'control/servers',
    'control/legacy',
  ],
  'control/streams/routes': [
    ...rest,
    'protocol',
    'protocol/link',
    'protocol/streams',
    'control/streams',
    'control/tasks',
    'control/tasks/requests',
  ],
  'control/legacy/routes': [...rest, 'control/access', 'control/servers', 'control/legacy'],
  'control/documents/routes': [...rest, 'platform/moray', 'control/documents'],
  'control/organizations/routes': [...rest, 'control/documents/routes', 'control/organizations'],
  // Documents of the bucket store, and the nouns that consist of them. A noun that needs another
  // one gets a line of its own.
  'control/documents': [
    ...base,
    'platform/moray',
    'protocol/api',
    'control/audit-part.ts',
    'control/request-errors.ts',
    'control/subsystem.ts',
    'control/documents/document-bucket.ts',
  ],
  'control/documents/document-bucket.ts': ['platform/moray', 'protocol/api'],
  'control/documents/*': [
    ...base,
    ...subsystem,
    'platform/moray',
    'protocol/api',
    'control/request-errors.ts',
    'control/documents',
    'control/documents/routes',
    'control/http',
  ],
  'control/documents/nouns.ts': ['control/documents', 'control/documents/*'],
  // Organizations consist of documents, and signed requests name their users and clients.
  'control/organizations': [
    ...database,
    'platform/moray',
    'protocol/api',
    'control/access',
    'control/documents',
    'control/request-errors.ts',
  ],
  // Push jobs in the form of Chef, and the signatures of its clients.
  'control/chef': [
    ...database,
    'protocol',
    'protocol/api',
    'control/access',
    'control/http',
    'control/request-errors.ts',
    'control/events',
    'control/organizations',
    'control/push',
  ],
  'control/chef/routes': [
    ...rest,
    'platform/postgres',
    'control/access',
    'control/organizations',
    'control/push',
    'control/chef',
    'control/tasks',
  ],
  'control/chef/subsystem.ts': [
    ...database,
    ...subsystem,
    'control/events',
    'control/organizations',
    'control/push',
    'control/chef',
    'control/chef/routes',
  ],
  'control/housekeeping': [...database, 'control/subsystem.ts'],
  'control/subsystem-host.ts': [
    ...database,
    ...subsystem,
    'control/http',
    'control/duty',
    'control/roster',
    'control/link',
  ],
  'control/descriptors': base,
  'control/promotion': [...database, 'protocol/link', 'control/tasks', 'control/roster'],
  'control/core.ts': [
    ...database,
    'control/placement',
    'platform/bus',
    'platform/moray',
    'control/config.ts',
    'control/access',
    'control/tasks',
    'control/waitlist',
    'control/duty',
    'control/events',
    'control/roster',
    'control/servers',
    'control/legacy',
    'control/ur',
    'control/link',
    'control/streams',
    'control/push',
    'control/organizations',
    'control/subsystem-host.ts',
  ],
  // What each folder contributes to an instance: its drivers, its routes and its migrations.
  'control/*/subsystem.ts': [...database, ...subsystem, 'control/*', 'control/doctor', 'control/*/routes'],
  'control/link/subsystem.ts': [...base, ...subsystem, 'control/access', 'control/link'],
  'control/streams/subsystem.ts': [
    ...base,
    ...subsystem,
    'control/access',
    'control/roster',
    'control/tasks',
    'control/streams',
    'control/streams/routes',
  ],
  'control/bus/subsystem.ts': [...base, ...subsystem, 'platform/bus', 'control/doctor'],
  'control/database/subsystem.ts': [...database, ...subsystem, 'platform/moray', 'control/doctor'],
  'control/promotion/subsystem.ts': [...database, 'control/subsystem.ts', 'control/promotion', 'control/roster'],
  'control/subsystem-list.ts': [
    ...database,
    'control/*/subsystem.ts',
    'control/push/schedules/subsystem.ts',
    'control/documents',
    'control/documents/nouns.ts',
  ],
  'control/app.ts': [
    ...database,
    'control/metrics',
    'platform/bus',
    'protocol/api',
    'control/config.ts',
    'control/access',
    'control/audit',
    'control/roster',
    'control/servers/routes',
    'control/http',
    'control/http/routes',
    'control/core.ts',
    'control/subsystem-host.ts',
    'control/chef',
    'control/subsystem-list.ts',
  ],
  'server.ts': [...base, 'control/config.ts', 'control/app.ts'],
  'control/access/direct-token.ts': [
    ...database,
    'protocol/api',
    'control/config.ts',
    'control/access',
    'control/access/routes',
    'control/audit',
    'control/subsystem-list.ts',
  ],
  'control/doctor': [
    ...database,
    'platform/amqp',
    'platform/bus',
    'platform/dns',
    'platform/http-client',
    'control/config.ts',
    'control/descriptors',
    'control/roster',
    'control/http',
    'control/subsystem-list.ts',
  ],

  // Programs that run elsewhere share with the control plane the platform and the protocol, and
  // what their lines name.
  ...agentLayers(base),
  // It reads the table of instances by the control plane's own statements.
  'name-server': [...database, 'platform/dns', 'control/roster'],
  client: [...base, 'platform/dns', 'platform/http-client', 'protocol/api', 'protocol/streams'],
  cli: [
    ...base,
    'platform/dns',
    'protocol',
    'protocol/api',
    'protocol/streams',
    'client',
    'cli/access/token.ts',
    'cli/instances/doctor.ts',
  ],
  // Only these two commands may import the control plane: they run a part of it in their own
  // process, without an instance.
  'cli/access/token.ts': [...base, 'protocol/api', 'cli', 'control/access/direct-token.ts'],
  'cli/instances/doctor.ts': [...base, 'cli', 'control/doctor'],
};

/** Node modules that a pure file may import: computations, no I/O. */
export const pureBuiltins: readonly string[] = ['node:crypto', 'node:util', 'node:net', 'node:assert', 'node:buffer'];

export const limits = { server: 60, file: 400 } as const;

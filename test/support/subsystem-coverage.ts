/**
 * All subsystems, their tables, and which tests of concurrency use each: the one list from which
 * the simulation (`test/sim`) and the forced interleavings (`test/interleavings`) take their
 * tables. `subsystem-coverage.test.ts` compares it with the subsystems of the product.
 */

/**
 * - simulated: the checks of the simulation see each change of a row.
 * - raced: two calls that use the table are a pair of the interleavings.
 * - held: another session locks one of its rows, and all work on other rows continues.
 */
type TableTest = 'simulated' | 'raced' | 'held';

/**
 * `logKey`: the column that names the subject of a row, for tables of which the interleavings log
 * each change together with what its writer could see.
 */
type TableCoverage = { tests: readonly TableTest[]; logKey?: string } | { untested: string };

interface SubsystemCoverage {
  /** Why the simulation leaves the subsystem out; absent if it does not. */
  unsimulated?: string;
  tables?: Readonly<Record<string, TableCoverage>>;
}

const ALL = ['simulated', 'raced', 'held'] as const;
const OWN_ROW = 'each statement is guarded on its own row';
const LOG = 'triggers add its rows; test/control/events tests its statements';
const NO_HTTP = 'requests of the simulation call the handlers of routes directly';

/**
 * Coverage by the folder of the subsystem in `lib/control`. Nouns of the bucket store have no
 * entry.
 */
export const subsystemCoverage = {
  roster: {
    tables: {
      cnapi_instances: { tests: ALL, logKey: 'run' },
      cnapi_roster_authority: { tests: ALL, logKey: 'server_uuid' },
      cnapi_status_history: { untested: 'a trigger adds its rows in the commit of the status change' },
    },
  },
  link: {},
  legacy: {
    tables: {
      cnapi_status: { tests: ['raced', 'held'] },
      cnapi_legacy_heartbeats: { untested: 'rows of many servers; the interleavings log each server of a row' },
      cnapi_agent_sources: { untested: OWN_ROW },
    },
  },
  ur: {
    tables: {
      cnapi_ur_servers: { untested: 'each statement is guarded by the count of its row; test/control/ur tests them' },
    },
  },
  servers: {
    tables: {
      cnapi_servers: { tests: ['raced', 'held'] },
      cnapi_server_sysinfo: { tests: ['held'] },
      cnapi_server_reports: { tests: ['raced', 'held'] },
    },
  },
  tasks: {
    tables: {
      cnapi_tasks: { tests: ALL, logKey: 'id' },
      cnapi_task_events: { untested: 'changed only with the row of the task locked' },
      cnapi_full_servers: { untested: 'two instances that write a row at once write the same' },
    },
  },
  vms: {
    tables: { cnapi_vms: { tests: ['raced'] } },
  },
  duty: { tables: { cnapi_duties: { tests: ALL, logKey: 'id' } } },
  push: {
    tables: {
      cnapi_push_jobs: { tests: ALL },
      cnapi_push_nodes: { tests: ALL },
      cnapi_push_busy: { tests: ALL },
      cnapi_push_feed: { untested: 'written only with the row of the job locked' },
      cnapi_push_tickets: { untested: "changed only with the row of the job's duty locked" },
    },
  },
  annealer: {
    tables: {
      cnapi_annealer: { tests: ['raced'] },
      cnapi_noderoles: { tests: ['simulated', 'raced'] },
      cnapi_noderole_edges: { tests: ['simulated', 'raced'] },
      cnapi_noderole_runs: { tests: ['simulated', 'raced'] },
    },
  },
  workflows: { tables: { cnapi_workflow_jobs: { tests: ['simulated', 'raced'] } } },
  waitlist: {
    tables: {
      cnapi_waitlist_queues: { tests: ['raced', 'held'] },
      cnapi_waitlist_tickets: { tests: ALL, logKey: 'uuid' },
      cnapi_waitlist_keys: { tests: ['raced'] },
    },
  },
  placement: {
    tables: { cnapi_placement_claims: { tests: ['raced'] } },
  },
  events: {
    tables: {
      cnapi_events: { untested: LOG },
      cnapi_event_outbox: { untested: LOG },
      cnapi_event_misses: { untested: LOG },
      cnapi_event_log: { untested: LOG },
      cnapi_event_numberings: { untested: LOG },
      cnapi_event_trims: { untested: LOG },
    },
  },
  'push/schedules': {
    unsimulated: 'no job of the simulation has a schedule; the interleavings race its statements',
    tables: {
      cnapi_push_schedules: { tests: ['raced'] },
      cnapi_push_firings: { tests: ['raced'] },
    },
  },
  bus: {},
  housekeeping: { tables: { cnapi_chores: { untested: OWN_ROW } } },
  database: {
    unsimulated: 'the simulated database has no disk to check',
    tables: {
      cnapi_buckets: { untested: 'changed only while an instance starts, under a lock' },
      cnapi_write_checks: { untested: OWN_ROW },
    },
  },
  access: { unsimulated: NO_HTTP, tables: { cnapi_tokens: { untested: OWN_ROW } } },
  audit: { unsimulated: NO_HTTP, tables: { cnapi_audit: { untested: OWN_ROW } } },
  http: { unsimulated: NO_HTTP },
  organizations: { unsimulated: NO_HTTP },
  streams: {},
  images: {},
  packages: {},
  zfs: {},
  chef: { unsimulated: NO_HTTP, tables: { cnapi_request_signatures: { untested: OWN_ROW } } },
  descriptors: { unsimulated: 'the simulation opens no files' },
  promotion: { unsimulated: 'the simulated database has no standby; test/failover promotes one' },
} as const satisfies Readonly<Record<string, SubsystemCoverage>>;

type AllTables = UnionToIntersection<TablesOf<(typeof subsystemCoverage)[keyof typeof subsystemCoverage]>>;
type TablesOf<Coverage> = Coverage extends { tables: infer Tables } ? Tables : never;
type UnionToIntersection<Union> = (Union extends unknown ? (one: Union) => void : never) extends (
  all: infer All,
) => void
  ? All
  : never;

/** The names of the tables that tests of this kind use. */
export type TableOf<Kind extends TableTest> = {
  [Name in keyof AllTables]: AllTables[Name] extends { tests: readonly (infer Tests)[] }
    ? Kind extends Tests
      ? Name
      : never
    : never;
}[keyof AllTables];

/** The tables of all subsystems, by name. */
export const tableCoverage: Readonly<Record<string, TableCoverage>> = Object.assign(
  {},
  ...Object.values<SubsystemCoverage>(subsystemCoverage).map(({ tables }) => tables),
);

export const tablesFor = <Kind extends TableTest>(kind: Kind): TableOf<Kind>[] =>
  Object.entries(tableCoverage).flatMap(([name, one]) =>
    'tests' in one && one.tests.includes(kind) ? [name as TableOf<Kind>] : [],
  );

/**
 * The tables of which the interleavings log each change, with the columns that name the subjects.
 */
export const loggedTables: readonly { table: string; key: string }[] = Object.entries(tableCoverage).flatMap(
  ([table, one]) => ('logKey' in one && one.logKey !== undefined ? [{ table, key: one.logKey }] : []),
);

/** The folders of the subsystems of which the simulation checks rows. */
export const simulatedFolders: readonly string[] = Object.entries<SubsystemCoverage>(subsystemCoverage).flatMap(
  ([folder, { tables = {} }]) =>
    Object.values(tables).some((one) => 'tests' in one && one.tests.includes('simulated')) ? [folder] : [],
);

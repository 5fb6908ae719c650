/**
 * The list of statements: the exported functions of modules in lib that query the database. It is
 * derived from the code, so a new function without a row in the table is detected.
 */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

const root = path.resolve(import.meta.dirname, '../..');

/** Modules that query a database and are not stores of coordination rows, each with the reason. */
export const otherModules: Readonly<Record<string, string>> = {
  'lib/platform/postgres/client.ts': 'asks a host for its timeline; no rows',
  'lib/platform/postgres/pool.ts': 'runs the statements of others',
  'lib/platform/postgres/write-health.ts': 'writes pages of its own and rolls them back; no rows of coordination',
  'lib/platform/postgres/database.ts': 'gives the statements of others a lock timeout',
  'lib/platform/postgres/batches/timed-database.ts': 'measures the statements of others',
  'lib/platform/postgres/migrations.ts': 'changes the schema, under a lock of its own, before anything else runs',
  'lib/platform/moray/bucket-schema.ts': 'changes the schema of buckets',
  'lib/platform/moray/bucket-store.ts': 'documents of buckets, guarded by their etags; no rows of coordination',
  'lib/platform/bus/postgres-bus.ts': 'LISTEN and NOTIFY; no rows',
  'lib/control/access/token-store.ts': 'tokens, each statement guarded on its own row; no rows of coordination',
  'lib/control/audit/audit-store.ts': 'rows that are added, and get their outcome once; no rows of coordination',
  'lib/control/legacy/source-store.ts': 'addresses of agents, one row each; no rows of coordination',
  'lib/control/organizations/organization-store.ts':
    'questions about documents, and the deletion of those whose owner is gone; no rows of coordination',
  'lib/control/chef/signatures/signature-store.ts': 'a row for each signature, inserted once; no rows of coordination',
  'lib/control/duty/duty-fence.ts': 'sends the statements of others',
  'lib/control/promotion/promotion-watch.ts':
    'reads the timeline; what is under way is a statement of the store of claims',
  'lib/control/doctor/access.ts': 'questions of `cnapi doctor`, which changes nothing',
  'lib/control/doctor/database.ts': 'questions of `cnapi doctor`, which changes nothing',
  'lib/control/placement/candidate-store.ts':
    'questions of the search for a server; what it finds, the claim checks again',
  'lib/control/ur/ur-store.ts':
    'statements that compare the epoch and the message of each row under its lock; test/control/ur tests them',
  'lib/control/servers/sysinfo-without-agent.ts':
    'looks at the reason of the row of the roster under its lock; test/control/servers races it with an agent',
  'lib/control/housekeeping/housekeeping.ts':
    'one guarded statement on a row of its own; what the chores do are statements of stores',
};

/** Exported by a store, and not a statement. */
export const noStatements: Readonly<Record<string, string>> = {
  taskInsertion: 'text that two statements of tasks share',
  taskInsertionValues: 'the parameters of that text',
  taskRecord: 'a part of that text',
  ticketInsertionValues: 'the parameters of two statements of the waitlist',
  readJobPage: 'what the two lists of push jobs share',
  firingGuard: 'a condition of the statement that creates a push job',
  runGuard: 'another condition of that statement',
  toTimestamp: 'a parameter of statements of schedules',
  reasonOfOwnerless: 'the reason that a statement wrote, for the log',
};

export interface StoreExport {
  module: string;
  name: string;
  value: unknown;
}

export async function findStatements(): Promise<StoreExport[]> {
  return (await findFunctions()).filter(({ name }) => !(name in noStatements));
}

export async function findFunctions(): Promise<StoreExport[]> {
  const found: StoreExport[] = [];
  for (const module of findModules()) {
    if (module in otherModules) continue;
    const exported: Record<string, unknown> = await import(path.join(root, module));
    for (const [name, value] of Object.entries(exported))
      if (typeof value === 'function') found.push({ module, name, value });
  }
  return found;
}

/** Functions that call `query` on something. */
export function findModules(): string[] {
  return readdirSync(path.join(root, 'lib'), { recursive: true, encoding: 'utf8' })
    .map((file) => path.join('lib', file))
    .filter((file) => file.endsWith('.ts') && !file.endsWith('.d.ts'))
    .filter((file) => /\.query\b *[<(]/.test(readFileSync(path.join(root, file), 'utf8')))
    .sort();
}
